"""FlatMap: an operator without a key and without state, which makes any number of rows of each record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tidemark.declare.outputs import Emits, EmittedOutput, Reads, check_outputs, declared_outputs, normal_reads
from tidemark.declare.publications import Publication
from tidemark.errors import DeclarationError
from tidemark.model.core.names import checked_name
from tidemark.model.core.types import FieldType
from tidemark.model.portable_sql.record_expression import bind_where
from tidemark.model.schema.operator_schema import OperatorSchema

if TYPE_CHECKING:
    from tidemark.sinks.sink import Sink

FlatMapFunction = Callable[[Any], Iterable[Any] | None]
"""`function(record)`, which yields instances of the emitted dataclass."""


@dataclass(frozen=True)
class FlatMap:
    """Passes each record to your function, which yields any number of rows, like Flink's FlatMapFunction.

    >>> from dataclasses import dataclass
    >>> from tidemark import FlatMap, Fold, KafkaSource, Pipeline, formats, state
    >>> @dataclass(frozen=True)
    ... class Line:
    ...     text: str
    >>> @dataclass(frozen=True)
    ... class Word:
    ...     word: str
    >>> class Count(state.Keyed):
    ...     n: int = state.count()
    >>> def split(line):
    ...     for word in line.text.split():
    ...         yield Word(word)
    >>> words = FlatMap("words", function=split, emits=Word)
    >>> counts = Fold("counts", input="words", key_by="word", state=Count)
    >>> Pipeline(name="lines", source=KafkaSource("lines", Line, format=formats.Text()), operators=[words, counts]).uids
    ('words', 'counts')

    It has no key and keeps no state, so its records are not shuffled: the function runs where they are read. It may be
    called for the same record again, and in any order, so it must give the same rows for the same record. To filter,
    give a condition, or yield nothing. Rows have the event time of their record. An exception fails the checkpoint; the
    error names partition and offset.

    Attributes:
        uid: as in `Fold`; it names the rows for sinks and for operators that read them.
        function: a plain Python function of one record.
        where: as in `Fold`.
        emits: dataclass of the yielded instances; for several outputs a dataclass each, by name, as in a `Process`.
        sink: where the rows go; None = only to operators that name this one as `input`.
        sinks: the sinks of several outputs, by name.
        input: as in `Fold`.
        on_error: `fail`, or `dead_letter`: a record that makes the function raise becomes a dead letter, and none of
            its rows are emitted.
        publish: always empty: it has no state to publish.
        was: the previous uid of a renamed operator: its dead letters are carried over.
        reads: as in a `Process`.
    """

    uid: str
    function: FlatMapFunction = field(kw_only=True)
    where: str | None = field(default=None, kw_only=True)
    emits: Emits = field(kw_only=True, hash=False)
    sink: "Sink | None" = field(default=None, kw_only=True)
    sinks: "Mapping[str, Sink]" = field(default_factory=dict, kw_only=True, hash=False)
    input: str | None = field(default=None, kw_only=True)
    on_error: Literal["fail", "dead_letter"] = field(default="fail", kw_only=True)
    publish: Sequence[Publication] = field(default=(), kw_only=True)
    was: str = field(default="", kw_only=True)
    reads: Reads = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        for name in (self.uid, self.was) if self.was else (self.uid,):
            checked_name("uid", name)
        if not callable(self.function):
            raise DeclarationError(f"{self.uid}: function={self.function!r}", next="give a function of one record.")
        if not isinstance(self.emits, type | Mapping):
            raise DeclarationError(
                f"{self.uid}: emits={self.emits!r}", next="give the dataclass whose instances the function yields."
            )
        if self.publish:
            raise DeclarationError(
                f"{self.uid}: publish= on a FlatMap, which keeps no state",
                next="give it a sink, or publish an operator that reads it.",
            )
        check_outputs(self.uid, self.outputs)
        object.__setattr__(self, "reads", normal_reads(self.uid, self.reads))

    @property
    def outputs(self) -> tuple[EmittedOutput, ...]:
        """Its outputs; the first has its uid."""
        return declared_outputs(self.uid, self.emits, self.sink, self.sinks)

    def bind(self, record: FieldType) -> OperatorSchema:
        """Returns its stored schema, which has neither keys nor fields, whatever its records are.

        Raises:
            DeclarationError: the condition does not fit the record.
        """
        where = None if self.where is None else bind_where(self.uid, self.where, record)
        return OperatorSchema(self.uid, (), (), kind="flat_map", where=where, was=self.was)
