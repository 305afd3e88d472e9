"""Damages manifests of a warehouse, and puts them back."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.support.retention import RetentionPipeline
from tidemark.coordinator.retention.give_up import GivingUp
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint


def key_of(checkpoint: Checkpoint) -> str:
    """Where its manifest lies."""
    return keys.slot_key(checkpoint.plan.slot.timeline, checkpoint.plan.slot.sequence)


def torn(raw: bytes, rng: Random) -> bytes:
    """Bytes as an accident leaves them: shortened, empty, a bit flipped, another file's."""
    at = rng.randrange(len(raw))
    return rng.choice((raw[:at], b"", raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :], b'{"kind": "other"}'))


@contextmanager
def damaged(retained: RetentionPipeline, checkpoint: Checkpoint, rng: Random | None = None) -> Iterator[bytes]:
    """The manifest is damaged in the block; behind it the bytes are back. Gives the whole bytes."""
    objects, key = retained.coordinator.objects.store.objects, key_of(checkpoint)  # type: ignore[attr-defined]
    whole = objects[key]
    objects[key] = torn(whole, rng or Random(0))
    yield whole
    objects[key] = whole


def giving_up(retained: RetentionPipeline) -> GivingUp:
    """The verb."""
    return GivingUp(coordinator=retained.coordinator)
