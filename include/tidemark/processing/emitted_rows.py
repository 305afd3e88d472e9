"""Turns the instances that a function yields into stored fields, whichever operator called it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
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

    def encode(self, item: Any) -> tuple[int, tuple[Any, ...]]:
        """Returns the number of the output that an instance belongs to, by its class, and its fields in stored form.

        Raises:
            TypeError: it is no instance of an emitted dataclass, or a field has another type.
            DoesNotFit: a value does not fit the type of its field.
        """
        n = self._places.get(type(item))
        if n is None:
            n = next((n for n, emits in enumerate(self.classes) if isinstance(item, emits)), None)
        if n is not None:
            return n, tuple(_field(self.classes[n], name, codec, item) for name, codec in self._codecs[n])
        wanted = f"not {' or '.join(c.__name__ for c in self.classes)}" if self.classes else "nothing is emitted"
        raise TypeError(f"yielded {item!r:.200}, {wanted}")

    def numbers(self) -> list[Iterator[int]]:
        """Returns a counter per output: the rows of one record are numbered per output, from 0."""
        return [count() for _ in self.classes]

    @cached_property
    def _places(self) -> dict[type, int]:
        return {emits: n for n, emits in enumerate(self.classes)}

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
