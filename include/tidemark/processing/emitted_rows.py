"""Turns the instances that a function yields into stored fields, whichever operator called it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidemark.declare.outputs import EmittedOutput
from tidemark.processing.shapes import Shape, record_shape
from tidemark.processing.value_codec import Codec, DoesNotFit, codec_of, type_of


@dataclass(frozen=True, kw_only=True)
class RowEncoder:
    """The outputs of an operator, ready to encode instances anywhere.

    Attributes:
        classes: the dataclass of each output.
        shapes: its shape.
    """

    classes: tuple[type, ...]
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, outputs: Sequence[EmittedOutput]) -> "RowEncoder":
        """Binds the outputs of an operator."""
        classes = tuple(output.emits for output in outputs)
        return cls(classes=classes, shapes=tuple(map(record_shape, classes)))

    def encode(self, item: Any) -> tuple[Any, ...]:
        """Returns the fields of an instance in stored form.

        Raises:
            TypeError: it is no instance of an emitted dataclass, or a field has another type.
            DoesNotFit: a value does not fit the type of its field.
        """
        for n, emits in enumerate(self.classes):
            if isinstance(item, emits):
                return tuple(_field(emits, name, codec, item) for name, codec in self._codecs[n])
        wanted = f"not {' or '.join(c.__name__ for c in self.classes)}" if self.classes else "nothing is emitted"
        raise TypeError(f"yielded {item!r:.200}, {wanted}")

    @cached_property
    def _codecs(self) -> list[list[tuple[str, Codec]]]:
        return [
            [(name, codec_of(inner)) for name, inner in zip(shape.names, shape.inner, strict=True)]
            for shape in self.shapes
        ]


def _field(emits: type, name: str, codec: Codec, item: Any) -> Any:
    try:
        return codec.dump(getattr(item, name))
    except (TypeError, DoesNotFit, UnicodeEncodeError) as error:
        raise type_of(error)(f"{emits.__name__}.{name}: {error}") from None
