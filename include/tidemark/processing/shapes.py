"""A declared type with the classes of its values: everything needed to convert them from and to stored values.

It is derived from annotations once, where the pipeline is declared. Workers get it complete, because they cannot
resolve annotations.
"""

import types as python_types
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import time
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from tidemark.model.core.types import FieldType, field_type


@dataclass(frozen=True, slots=True)
class Shape:
    """A stored type and the Python class of its values.

    Attributes:
        type: the stored type.
        cls: the class of values that are stored as something else: a dataclass, an Enum, UUID, time; otherwise None.
        inner: of a list its element; of a map key and value; of a struct its fields, in order.
    """

    type: FieldType
    cls: Any = None
    inner: tuple["Shape", ...] = ()

    @property
    def load(self) -> Callable[[Any], Any] | None:
        """Returns a function from the stored form of a scalar to its value; None = they are the same."""
        if self.cls is None or self.type.kind == "struct":
            return None
        if self.cls is time:
            return time.fromisoformat
        if self.cls is UUID:
            return UUID
        found: Callable[[Any], Any] = {member.value: member for member in self.cls}.__getitem__
        return found

    def at(self, path: str) -> "Shape | None":
        """Returns the shape at a dotted path in a struct; None if there is none."""
        found: Shape | None = self
        for step in path.split("."):
            found = found.inner[found.names.index(step)] if found is not None and step in found.names else None
        return found

    @property
    def classes(self) -> list[Any]:
        """Dataclasses and Enums in it, at any depth: a worker needs them, wherever their author has put them."""
        own = [] if self.cls is None or self.type.form else [self.cls]
        return own + [cls for shape in self.inner for cls in shape.classes]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of a struct's fields."""
        return tuple(name for name, _ in self.type.fields)


def shape_of(hint: Any, where: str) -> Shape:
    """Returns the shape for a resolved annotation.

    Raises:
        DeclarationError: it has no stored type.
    """
    found = field_type(hint, where)
    bare = _bare(hint)
    if found.kind == "struct":
        hints = get_type_hints(bare, include_extras=True)
        inner = tuple(shape_of(hints[f.name], f"{where}.{f.name}") for f in fields(bare))
        return Shape(found, bare, inner)
    if found.element is not None:
        return Shape(found, None, tuple(shape_of(a, where) for a in get_args(bare)))
    is_class = isinstance(bare, type) and (found.form or found.members)
    return Shape(found, bare if is_class else None)


def record_shape(cls: type) -> Shape:
    """Returns the shape of a record dataclass, which its declaration has checked; fields may be Kafka's own.

    Raises:
        DeclarationError: a field has no stored type.
    """
    hints = get_type_hints(cls, include_extras=True)
    inner = {f.name: shape_of(hints[f.name], f"{cls.__name__}.{f.name}") for f in fields(cls)}
    struct = FieldType("struct", fields=tuple((name, shape.type) for name, shape in inner.items()))
    return Shape(struct, cls, tuple(inner.values()))


def _bare(hint: Any) -> Any:
    """Returns an annotation without `| None` and without the additions of `Annotated`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, python_types.UnionType):
        return _bare(next(a for a in args if a is not type(None)))
    if origin is Annotated:
        return _bare(args[0])
    return hint


def is_changeable(shape: Shape) -> bool:
    """Whether a value is mutable: a list, a dict, a dataclass that is not frozen, or one that contains such a value."""
    if shape.type.element is not None:
        return True
    if shape.cls is None or shape.type.kind != "struct":
        return False
    return not shape.cls.__dataclass_params__.frozen or any(map(is_changeable, shape.inner))
