"""A store that lets another process run at each operation, for schedules of processes that share it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tidemark.ports import PutOutcome
from tidemark.testing.twin.memory import MemoryStore


@lru_cache(maxsize=1 << 16)
def is_of_erasures(key: str) -> bool:
    """Whether only erasures write objects with this key: their records, and revisions of manifests."""
    name = key.rpartition("/")[2]
    return key.startswith("erasures/") or (key.startswith("timelines/") and ".r" in name)


@dataclass
class SteppedStore(MemoryStore):
    """A `MemoryStore` that calls `pause` before each step.

    Without erasures, reads of objects that only erasures write return the same result at any time. They are not steps
    then, so that schedules vary only the operations whose results may differ.

    Attributes:
        pause: called with a description of each operation before it happens.
        erases: whether the schedule contains erasures.
    """

    pause: Callable[[str], None] = lambda what: None
    erases: bool = False

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        assert self.erases or not is_of_erasures(key), f"unexpected erasure: {key}"
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
