"""Erases a key from every restore point, without Spark."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TypeVar

from tidemark.answers.retention_facts import ErasureFacts, FileWithKey, PartOfKey
from tidemark.context import Context
from tidemark.coordinator.retention.downstream_operators import Chained, in_order, rows_in_part
from tidemark.coordinator.retention.erasure_residue import ErasureResidue, erasure_residue
from tidemark.coordinator.retention.erasure_search import KeyOccurrences
from tidemark.coordinator.retention.key_erasure import Erased, Eraser, ErasureRequest, refuse_held
from tidemark.coordinator.retention.sweep import Sweeper, Swept
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.core.names import operator_of
from tidemark.model.core.types import KEY_KINDS, column_type
from tidemark.model.retention.erasure import keyed_by
from tidemark.model.schema.key_groups import key_text, typed_key
from tidemark.model.schema.operator_schema import OperatorSchema

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """The result of an erasure, or its preview: `done` is None if it was not executed.

    Attributes:
        uid: the operator.
        key: its key, as text.
        found: where the key was before the erasure.
        residue: the places that the erasure does not reach.
        done: the completed erasure.
        swept: the files that were deleted at once.
        chained: reports of downstream operators with the same key columns, from which the key is erased as well.
        in_part: per downstream operator whose keys include these columns: its key columns, and the number of rows.
        untold: downstream operators with other key columns, with these. It is unknown which of their rows came from the
            key.
        is_declared: whether the pipeline's file was found; without it, the downstream operators are unknown.
    """

    uid: str
    key: tuple[str, ...]
    found: KeyOccurrences
    residue: ErasureResidue
    done: Erased | None = None
    swept: Swept | None = None
    chained: tuple["ErasureReport", ...] = ()
    in_part: Mapping[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    untold: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_declared: bool = True


def plan_erasure(context: Context, name: str, request: ErasureRequest) -> ErasureReport:
    """Returns where a key is, and what its erasure would write again; writes nothing.

    Raises:
        NotFoundError: no such pipeline, or no checkpoint names the operator.
        UsageError: the key has another number of columns, or a value does not fit.
        ConflictError: a restore point that holds the key is under a legal hold.
        StoreError, CorruptObjectError: something is damaged, or cannot be read.
    """
    return _search_all(context, name, _erasers(context, name, request))


def erase(context: Context, name: str, request: ErasureRequest) -> ErasureReport:
    """Erases a key from every restore point; see `Eraser.erase`. A repetition finishes what a killed call left.

    Downstream operators with the same key columns lose the key as well. All of them are searched first.

    Args:
        context: of this process.
        name: the pipeline.
        request: the key, and the scope of the erasure.

    Raises:
        BusyError: another process works on a timeline of the pipeline.
        TidemarkError: as in `plan_erasure` and `Eraser.erase`.
    """
    erasers = _erasers(context, name, request)
    coordinator = erasers[0].coordinator
    with ExitStack() as held:
        for timeline in sorted({*coordinator.timelines.names(), coordinator.timelines.live()}):
            held.enter_context(context.lock(name, timeline))
        report = _search_all(context, name, erasers)
        done, *behind = [eraser.erase() for eraser in erasers]
    # Without a rule nothing is released, and free files are deleted whatever their grace time.
    sweeper = Sweeper(coordinator=coordinator, files=context.table_files, rule=None, grace_ms=0)
    chained = tuple(replace(r, done=d) for r, d in zip(report.chained, behind, strict=True))
    return replace(report, done=done, chained=chained, swept=sweeper.sweep() if request.now else None)


def _search_all(context: Context, name: str, erasers: Sequence[Eraser]) -> ErasureReport:
    """The findings of all erasers. Raises whatever any of them raises, before the first change."""
    uids = [eraser.request.uid for eraser in erasers]
    first, *behind = [_search(eraser, uids) for eraser in erasers]
    found = _chained(context, name, erasers[0].request)
    if found is None:
        return replace(first, is_declared=False)
    columns = _columns(_keyed(context, name, erasers[0].request)[0], erasers[0].key)
    rows = rows_in_part(first.found, erasers[0].searcher, found, columns)
    in_part = {uid: (its, rows[uid]) for uid, its in found.part.items()}
    return replace(first, chained=tuple(behind), in_part=in_part, untold=found.other)


def _chained(context: Context, name: str, request: ErasureRequest) -> Chained | None:
    """The downstream operators; None if the pipeline's file is gone."""
    try:
        return Chained.behind(context.pipeline(name), _keyed(context, name, request)[0])
    except NotFoundError:
        return None


def _erasers(context: Context, name: str, request: ErasureRequest) -> list[Eraser]:
    """The erasers of an operator and of the downstream operators that hold the same key."""
    made = [_eraser(context, name, request)]
    chained = _chained(context, name, request)
    texts = _columns(_keyed(context, name, request)[0], request.key)
    for behind in () if chained is None else chained.same:
        try:
            ordered = in_order(keyed_by(_schema(context, name, behind), ()), texts)
        except NotFoundError:
            continue  # declared, but in no checkpoint yet: it holds nothing
        made.append(_eraser(context, name, replace(request, uid=behind, key=tuple(ordered), by=())))
    return made


def _search(eraser: Eraser, reached: Sequence[str]) -> ErasureReport:
    searcher = eraser.searcher
    found = searcher.search_keys()
    refuse_held(eraser.coordinator, found)
    wanted = eraser.request
    return ErasureReport(uid=wanted.uid, key=wanted.key, found=found, residue=erasure_residue(found, searcher, reached))


def _eraser(context: Context, name: str, request: ErasureRequest) -> Eraser:
    from tidemark.engine.write.parquet_writer import written_run
    from tidemark.tables.key_rewriter import ParquetKeyFiles

    coordinator = context.coordinator(context.require_pipeline(name))
    schema, columns = _keyed(context, name, request)
    values = typed_key(schema, request.key)
    return Eraser(
        coordinator=coordinator,
        tables=context.tables,
        files=ParquetKeyFiles(warehouse=context.warehouse.root, footers=written_run),
        logs=context.table_files,
        request=replace(request, key=_texts(values)),
        key=values,
        columns=columns,
    )


def _keyed(context: Context, name: str, request: ErasureRequest) -> tuple[OperatorSchema, tuple[tuple[str, str], ...]]:
    """The schema of an operator with the columns that hold the key, and these columns if they are those of its rows.

    Raises:
        NotFoundError: no checkpoint names the operator.
        UsageError: the operator has keys of its own, or has none and the request names no columns of its rows.
    """
    schema = _schema(context, name, request.uid)
    if schema.keeps_state:
        if request.by:
            raise UsageError(
                f"{request.uid} has keys: {', '.join(k.name for k in schema.own_keys)}",
                next="leave --by out: it names columns of the rows of a FlatMap.",
            )
        return keyed_by(schema, ()), ()
    found = _row_columns(context, name, request.uid)
    if not request.by or not set(request.by) <= found.keys():
        what = f"has no rows with the columns {', '.join(request.by)}" if request.by else "is a FlatMap: it has no keys"
        known = f"there are {', '.join(sorted(found))}" if found else "it has no sink, so it stores no rows"
        raise UsageError(
            f"{request.uid} {what}",
            next=f"name columns of its rows that hold the key, as in --by COLUMN --key VALUE: {known}.",
        )
    columns = tuple((column, found[column]) for column in request.by)
    return keyed_by(schema, columns), columns


def _row_columns(context: Context, name: str, uid: str) -> dict[str, str]:
    """Name and SQL type of the columns that may be keys in the rows of an operator's sinks; the newest type counts."""
    found: dict[str, str] = {}
    for made in context.coordinator(name).timelines.all():
        for output, table in made.plan.sinks.items():
            if operator_of(output, made.plan.schemas) == uid:
                found |= {column: sql for column, sql in table.columns if column_type(sql).kind in KEY_KINDS}
    return found


def _schema(context: Context, name: str, uid: str) -> OperatorSchema:
    """The newest stored schema of an operator, from whichever timeline has it.

    Raises:
        NotFoundError: no checkpoint names the operator.
    """
    known: dict[str, None] = {}
    for found in reversed(context.coordinator(name).timelines.all()):
        if uid in found.plan.schemas:
            return found.plan.schemas[uid]
        known.update(dict.fromkeys(found.plan.schemas))
    remedy = f"name one of: {', '.join(known)}." if known else f"tidemark run {name}"
    raise NotFoundError(f"no checkpoint of {name} has an operator {uid!r}", next=remedy)


def _columns(schema: OperatorSchema, values: Sequence[T]) -> dict[str, T]:
    return dict(zip((key.name for key in schema.keys), values, strict=True))


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    """The texts that `typed_key` can parse again."""
    return tuple(v.isoformat() if isinstance(v, date) else key_text(v) for v in values)


def describe_erasure(report: ErasureReport) -> ErasureFacts:
    """An erasure as an answer."""
    found, left, done = report.found, report.residue, report.done
    files = [(table, path, held) for table, of in found.files.items() for path, held in of.items()]
    return ErasureFacts(
        uid=report.uid,
        key=list(report.key),
        executed=done is not None,
        erasure=None if done is None or not done.number else done.number,
        restore_points={name: len(held) for name, held in found.by_entry.items()},
        files=[FileWithKey(file=f"{table}/{path}", rows=h.rows, bytes=h.file.file.size) for table, path, h in files],
        rows=sum(h.rows for _, _, h in files),
        bytes=sum(h.file.file.size for _, _, h in files),
        deleted_files=None if report.swept is None else len(report.swept.deleted),
        deleted_log_files=None if report.swept is None else report.swept.log_files,
        dead_letters=dict(left.dead_letters),
        sinks=dict(left.sinks),
        sinks_to_search=list(left.sinks_to_search),
        topics={topic: {str(p): end for p, end in sorted(ends.items())} for topic, ends in left.topics.items()},
        exports=list(left.exports),
        lists=list(left.lists),
        publications=dict(left.publications),
        chained=[describe_erasure(behind) for behind in report.chained],
        chained_in_part={uid: PartOfKey(key_by=list(its), rows=rows) for uid, (its, rows) in report.in_part.items()},
        chained_by_other_keys={uid: list(its) for uid, its in report.untold.items()},
        chained_unknown=not report.is_declared,
    )
