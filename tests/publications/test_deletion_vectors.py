"""Deletion vectors: written and read back, refused if damaged, and found by deltalake."""

import os
import random
import struct
import zlib
from uuid import UUID, uuid4

import pytest
from pyroaring import BitMap64

from tidemark.errors import StoreError
from tidemark.publications.deletion_vectors import VectorPlace, read_vector, write_vectors

NAME = UUID("01234567-89ab-cdef-0123-456789abcdef")
VECTORS = {
    "none": BitMap64(),
    "thirds": BitMap64(range(0, 1000, 3)),
    "far": BitMap64([0, 2**16, 2**32 + 1]),
    "all": BitMap64(range(100_000)),
}


def test_several_vectors_of_one_file_read_back() -> None:
    path, body, places = write_vectors(VECTORS, NAME)
    for file, positions in VECTORS.items():
        place = VectorPlace.of(places[file].to_json())
        assert place is not None
        assert (place.file, place.cardinality) == (path, len(positions))
        assert read_vector(place, {path: body}.__getitem__) == positions


def test_two_vectors_of_one_file_are_two_logical_files() -> None:
    _, _, places = write_vectors(VECTORS, NAME)
    assert len({place.id for place in places.values()}) == len(VECTORS)


def test_the_bytes_are_those_of_the_formats() -> None:
    # Delta's protocol: version, size, vector, CRC-32. A vector: magic number, number of bitmaps, high bits, bitmap.
    # Roaring's: cookie of bitmaps without runs, number of containers, key and cardinality - 1, offset, the values.
    rows = [3, 4, 7, 11, 18, 29]
    bitmap = struct.pack("<II HH I 6H", 12346, 1, 0, len(rows) - 1, 16, *rows)
    vector = struct.pack("<I Q I", 1681511377, 1, 0) + bitmap
    _, body, places = write_vectors({"a": BitMap64(rows)}, NAME)
    assert body == b"\x01" + struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    assert places["a"].to_json() == {
        "storageType": "u",
        "pathOrInlineDv": "_tidemark0v73CIl1[&0v73CIl1[&",
        "offset": 1,
        "sizeInBytes": len(vector),
        "cardinality": len(rows),
    }


def test_any_damaged_byte_is_an_error() -> None:
    seed = int(os.environ.get("TIDEMARK_TEST_SEED", "20261126"))
    print(f"seed {seed}; TIDEMARK_TEST_SEED={seed}")
    chance = random.Random(seed)
    path, body, places = write_vectors({"a": VECTORS["thirds"]}, uuid4())
    for _ in range(50):
        at = chance.randrange(1, len(body))
        damaged = bytearray(body)
        damaged[at] ^= 1 << chance.randrange(8)
        with pytest.raises(StoreError, match="unreadable deletion vector"):
            read_vector(places["a"], {path: bytes(damaged)}.__getitem__)


@pytest.mark.parametrize("storage", ["i", "p"])
def test_a_vector_that_is_not_below_the_table_is_refused(storage: str) -> None:
    place = VectorPlace(storage=storage, path="wi5b=000010000siXQKl0rr91", offset=1, size=4, cardinality=1)
    with pytest.raises(StoreError, match="not below the table"):
        read_vector(place, lambda path: pytest.fail(path))
