"""Deletion vectors: written and read back, refused if damaged, and found by deltalake."""

import os
import random
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


def test_an_inline_vector_reads_back() -> None:
    # The example of Delta's protocol: rows 3, 4, 7, 11, 18 and 29.
    text = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    place = VectorPlace(storage="i", path=text, offset=None, size=44, cardinality=6)
    found = read_vector(place, lambda path: pytest.fail(path))
    assert sorted(found) == [3, 4, 7, 11, 18, 29]


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


def test_an_absolute_path_is_refused() -> None:
    place = VectorPlace(storage="p", path="s3://elsewhere/x.bin", offset=1, size=4, cardinality=1)
    with pytest.raises(StoreError, match="not below the table"):
        read_vector(place, lambda path: pytest.fail(path))
