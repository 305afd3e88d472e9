"""A declared type with the classes that its values have: what is needed to make them from stored ones and back.

It is taken from annotations once, where the pipeline is declared; a worker gets it whole, because annotations cannot be
resolved there.
"""

import types as python_types
from dataclasses import dataclass, fields
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from tidemark.model.core.types import FieldType, field_type


@dataclass(frozen=True, slots=True)
class Shape:
    """A stored type and the Python class of its structs.

    Attributes:
        type: the stored type.
        cls: of a struct: its dataclass; else None.
        inner: of a list its element; of a map key and value; of a struct its fields, in order.
    """

    type: FieldType
    cls: Any = None
    inner: tuple["Shape", ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of a struct's fields."""
        return tuple(name for name, _ in self.type.fields)


def shape_of(hint: Any, where: str) -> Shape:
    """The shape that a resolved annotation names.

    Raises:
        DeclarationError: no stored type.
    """
    found = field_type(hint, where)
    bare = _bare(hint)
    if found.kind == "struct":
        hints = get_type_hints(bare, include_extras=True)
        inner = tuple(shape_of(hints[f.name], f"{where}.{f.name}") for f in fields(bare))
        return Shape(found, bare, inner)
    if found.element is not None:
        return Shape(found, None, tuple(shape_of(a, where) for a in get_args(bare)))
    return Shape(found)


def record_shape(cls: type) -> Shape:
    """The shape of a record dataclass.

    Raises:
        DeclarationError: no dataclass, or a field without a stored type.
    """
    return shape_of(cls, cls.__name__)


def _bare(hint: Any) -> Any:
    """An annotation without `| None` and without what `Annotated` adds."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, python_types.UnionType):
        return _bare(next(a for a in args if a is not type(None)))
    if origin is Annotated:
        return _bare(args[0])
    return hint


def is_changeable(shape: Shape) -> bool:
    """Whether a value can change in place: a list, a dict, a dataclass that is not frozen, or one that holds such."""
    if shape.type.element is not None:
        return True
    if shape.cls is None:
        return False
    return not shape.cls.__dataclass_params__.frozen or any(map(is_changeable, shape.inner))
