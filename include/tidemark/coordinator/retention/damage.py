"""Manifests that cannot be read, and their reach: every file that such a manifest may name stays.

A manifest names files of its own timeline and of that timeline's ancestors, and of no others. So on these timelines no
checkpoint is released and no file deleted until the manifest is restored or given up; everything else continues.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.retention.stored_rule import Lines
from tidemark.errors import CorruptObjectError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.retention.deletion import DamagedManifest
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.promotion_claims import PromotionClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedManifests:
    """The damaged manifests found by one pass.

    Attributes:
        manifests: the damaged manifests, sorted by key.
        ids: their checkpoint ids, if a plan gives them.
        timelines: all timelines that they block.
    """

    manifests: tuple[DamagedManifest, ...] = ()
    ids: frozenset[int] = frozenset()
    timelines: frozenset[str] = frozenset()

    def pins(self, read: Iterable[ManifestLine]) -> Iterator[tuple[int, str]]:
        """Why the checkpoints on blocked timelines stay, and the damaged ones themselves."""
        for number in self.ids:
            yield number, "its manifest is damaged"
        for found in self.manifests:
            for line in read if found.blocks else ():
                if line.timeline in found.blocks:
                    yield line.id, f"{found.name}, whose manifest is damaged"


UNHARMED = DamagedManifests()


def damage_of(objects: Objects, lines: Lines, damaged: Mapping[str, CorruptObjectError]) -> DamagedManifests:
    """Determines the reach of damaged entries of timelines.

    Args:
        objects: the store.
        lines: all entries that can be read.
        damaged: errors of the entries that cannot, by key.

    Raises:
        CorruptObjectError: the entry is, or may be, a genesis or a closing, whose reach is unknown.
    """
    found, ids, blocked = list[DamagedManifest](), set[int](), set[str]()
    for key, error in sorted(damaged.items()):
        timeline, sequence = keys.place_of(key)
        if not is_manifest(objects, lines, timeline, sequence):
            raise error
        plan = last_plan(objects, timeline, sequence)
        reach = origins(lines, timeline)
        name = f"{timeline}/{sequence}" if plan is None else plan.name
        found.append(DamagedManifest(name=name, key=key, why=error.what, blocks=tuple(sorted(reach))))
        ids |= set() if plan is None else {plan.id}
        blocked |= reach
    return DamagedManifests(manifests=tuple(found), ids=frozenset(ids), timelines=frozenset(blocked))


def is_manifest(objects: Objects, lines: Lines, timeline: str, sequence: int) -> bool:
    """Whether an unreadable entry in a slot certainly was a manifest, and not a genesis or a closing.

    A genesis is the first entry of its timeline. A closing is the last entry: another timeline continues in its place,
    or has announced that it will.
    """
    if sequence == 1 and timeline != keys.FIRST_TIMELINE:
        return False
    if keys.greatest(objects.list(f"timelines/{timeline}/")) > sequence:
        return True
    if any(genesis.closes == timeline for genesis in lines.geneses.values()):
        return False
    announced = (objects.read(PromotionClaim, key) for key in objects.list("fates/"))
    return not any(f is not None and timeline in (f.timeline, f.closes) for f in announced)


def origins(lines: Lines, timeline: str) -> set[str]:
    """A timeline and all timelines whose tables it may name: its ancestors, and the timelines that it replaced."""
    found, left = set[str](), [timeline]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        genesis = lines.geneses.get(name)
        if genesis is not None:
            left += [genesis.parent_timeline, *([genesis.closes] if genesis.closes else [])]
        left += [closed for closed, closing in lines.closings.items() if closing.successor == name]
    return found


def last_plan(objects: Objects, timeline: str, sequence: int) -> CheckpointPlan | None:
    """The last plan of a slot, which is the one that completed. None if there is none, or it is damaged too."""
    found, k = None, 1
    try:
        while (plan := objects.plan(Slot(timeline=timeline, sequence=sequence, k=k))) is not None:
            found, k = plan, k + 1
    except CorruptObjectError:
        return None
    return found
