"""A store at whose every operation another process may go on, for schedules of processes that share it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tidemark.ports import PutOutcome
from tidemark.testing.twin.memory import MemoryStore


@lru_cache(maxsize=1 << 16)
def is_of_erasures(key: str) -> bool:
    """Whether only an erasure writes such an object: its record, or the revision of a manifest."""
    name = key.rpartition("/")[2]
    return key.startswith("erasures/") or (key.startswith("timelines/") and ".r" in name)


@dataclass
class SteppedStore(MemoryStore):
    """The store.

    Where nobody erases, a read of what only erasures write meets the same whenever it happens. So it is no step of its
    own: schedules go to what may come out differently.

    Attributes:
        pause: told of an operation before it happens.
        erases: whether somebody may.
    """

    pause: Callable[[str], None] = lambda what: None
    erases: bool = False

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        assert self.erases or not is_of_erasures(key), f"somebody erases: {key}"
        self.pause(f"put {key}")
        return super().put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        if self.erases or not is_of_erasures(key):
            self.pause(f"get {key}")
        return super().get(key)

    def list(self, prefix: str) -> Sequence[str]:
        if self.erases or not is_of_erasures(prefix):
            self.pause(f"list {prefix}")
        return super().list(prefix)

    def stamps(self, prefix: str) -> Mapping[str, str]:
        self.pause(f"list {prefix}")
        return super().stamps(prefix)
