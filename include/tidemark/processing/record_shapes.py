"""The shape of the records of an operator, and the pairs of input and record that a `CoProcess` gets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import make_dataclass
from operator import attrgetter
from typing import Any

from tidemark.declare.co_process import CoProcess
from tidemark.declare.operators import Operator
from tidemark.declare.pipeline import Pipeline
from tidemark.model.core.types import FieldType
from tidemark.model.schema.united_records import field_of_input
from tidemark.processing.shapes import Shape, record_shape


def shape_of_records(pipeline: Pipeline, operator: Operator) -> Shape:
    """Returns the shape of the records of an operator; those of a `CoProcess` are united.

    Raises:
        DeclarationError: a field has no stored type.
    """
    shapes = [record_shape(pipeline.record_class(name)) for name in pipeline.inputs_of(operator)]
    return _united(pipeline, operator, shapes) if isinstance(operator, CoProcess) else shapes[0]


def _united(pipeline: Pipeline, operator: CoProcess, records: Sequence[Shape]) -> Shape:
    """The shape of `model.schema.united_records`; its classes are made here, because no author declares them."""
    struct = pipeline.record_of(operator)
    key, *inputs = (of for _, of in struct.fields)
    columns = [records[0].at(path) for path in operator.key_by[operator.inputs[0]]]
    of_key = Shape(key, _class(operator, "Key", key), tuple(column for column in columns if column is not None))
    of_inputs = (Shape(of, shape.cls, shape.inner) for of, shape in zip(inputs, records, strict=True))
    return Shape(struct, _class(operator, "United", struct), (of_key, *of_inputs))


def _class(operator: CoProcess, name: str, struct: FieldType) -> type:
    # Everything from the module of the author travels to workers by value.
    home = {"__module__": operator.state.__module__}
    return make_dataclass(name, [field for field, _ in struct.fields], frozen=True, namespace=home)


def named_records(inputs: Sequence[str], united: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the name of an input and the record for each united record.

    Args:
        inputs: the names of the inputs, in order.
        united: instances of the class of `shape_of_records`, read one by one.
    """
    read = [(name, attrgetter(field_of_input(n))) for n, name in enumerate(inputs)]
    for one in united:
        yield next((name, found) for name, of in read if (found := of(one)) is not None)
