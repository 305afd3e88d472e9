"""Deletion vectors of Delta tables: which rows of a data file are deleted, by their positions.

The format is that of the section "Deletion Vectors" of Delta's protocol: a 64-bit Roaring bitmap in its portable form
behind a magic number. A file holds several vectors, each with its size and a checksum.
"""

import re
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pyroaring import BitMap64

from tidemark.errors import StoreError

FOLDER = "_tidemark"
"""Folder below a table for its vectors; clean-ups of other writers skip names that begin with `_`."""
_MAGIC = 1681511377
_VERSION = b"\x01"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_LENGTH = 20
_BLOCK, _BASE = 4, 85
_NUMBERED = re.compile(rf"{FOLDER}/deletion_vector_([0-9a-f]{{8}}-[0-9a-f]{{4}})-.*\.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorPlace:
    """Where a vector is: the `deletionVector` of an action of the log.

    Attributes:
        storage: `u` = a file below the table, the only form that Tidemark writes and reads.
        path: folder and encoded UUID of the file.
        offset: of the vector in its file; None in other forms.
        size: bytes of the serialized vector.
        cardinality: number of deleted rows.
    """

    storage: str
    path: str
    offset: int | None
    size: int
    cardinality: int

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> "VectorPlace | None":
        """Returns the place in an action's `deletionVector`; None if the file has none."""
        if not found or found.get("storageType") is None:
            return None
        return cls(
            storage=found["storageType"],
            path=found["pathOrInlineDv"],
            offset=found.get("offset"),
            size=found["sizeInBytes"],
            cardinality=found["cardinality"],
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the value of `deletionVector`."""
        found = {"storageType": self.storage, "pathOrInlineDv": self.path, "offset": self.offset}
        found |= {"sizeInBytes": self.size, "cardinality": self.cardinality}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def id(self) -> str:
        """Identifies the vector in a table, as the protocol does."""
        return f"{self.storage}{self.path}" + ("" if self.offset is None else f"@{self.offset}")

    @property
    def file(self) -> str | None:
        """The path of its file relative to the table; None for a vector in another form."""
        if self.storage != "u":
            return None
        folder, name = self.path[:-_UUID_LENGTH], UUID(bytes=_decode(self.path[-_UUID_LENGTH:]))
        return f"{folder}/{_file_name(name)}" if folder else _file_name(name)


def numbered_name(number: int, random: UUID) -> UUID:
    """Returns the name of a file of vectors that begins with the number of a step, for clean-ups; 48 bits of it."""
    return UUID(bytes=number.to_bytes(6) + random.bytes[6:])


def number_of(path: str) -> int | None:
    """Returns the number in the path of a file of vectors; None if the path is none."""
    found = _NUMBERED.fullmatch(path)
    return None if found is None else int(found[1].replace("-", ""), 16)


def write_vectors(vectors: Mapping[str, BitMap64], name: UUID) -> tuple[str, bytes, dict[str, VectorPlace]]:
    """Returns path and bytes of one file with several vectors, and the place of each.

    Args:
        vectors: positions of deleted rows, by data file.
        name: names the file; see `numbered_name`.
    """
    body, places = bytearray(_VERSION), {}
    for file, positions in vectors.items():
        data = struct.pack("<I", _MAGIC) + positions.serialize()
        places[file] = VectorPlace(
            storage="u",
            path=FOLDER + _encode(name.bytes),
            offset=len(body),
            size=len(data),
            cardinality=len(positions),
        )
        body += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    return f"{FOLDER}/{_file_name(name)}", bytes(body), places


def read_vector(place: VectorPlace, read: Callable[[str], bytes]) -> BitMap64:
    """Returns the positions of deleted rows.

    Args:
        place: the place of the vector.
        read: returns the bytes of a file relative to the table.

    Raises:
        StoreError: the vector is damaged, or not in a file below the table.
    """
    path = place.file
    if path is None or place.offset is None:
        raise _unreadable(place.path, "it is not below the table")
    raw = read(path)[place.offset :]
    data, end = raw[4 : 4 + place.size], 4 + place.size
    if raw[:4] != struct.pack(">I", place.size) or raw[end : end + 4] != struct.pack(">I", zlib.crc32(data)):
        raise _unreadable(path, "its checksum does not match")
    if data[:4] != struct.pack("<I", _MAGIC):
        raise _unreadable(path, "it is not a Roaring bitmap in its portable form")
    return BitMap64.deserialize(data[4:])


def _unreadable(where: str, why: str) -> StoreError:
    return StoreError(
        f"unreadable deletion vector {where}: {why}",
        safe="every checkpoint is intact; the table was left alone.",
        next="restore the file from a backup, or remove the table, so that it is published as a whole.",
    )


def _file_name(name: UUID) -> str:
    return f"deletion_vector_{name}.bin"


def _encode(raw: bytes) -> str:
    """Returns bytes in Z85 (ZeroMQ RFC 32); their number is a multiple of four."""
    text: list[str] = []
    for start in range(0, len(raw), _BLOCK):
        number, digits = int.from_bytes(raw[start : start + _BLOCK]), []
        for _ in range(_BLOCK + 1):
            number, digit = divmod(number, _BASE)
            digits.append(_DIGITS[digit])
        text += reversed(digits)
    return "".join(text)


def _decode(text: str) -> bytes:
    raw = bytearray()
    for start in range(0, len(text), _BLOCK + 1):
        number = 0
        for digit in text[start : start + _BLOCK + 1]:
            number = number * _BASE + _DIGITS.index(digit)
        raw += number.to_bytes(_BLOCK)
    return bytes(raw)
