"""Runs cases: each has a topic, workloads, and peers that take turns and are checked against the oracle at the end."""

import itertools
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.generator import Updates
from benchmarks.peers.flink import FlinkPeer
from benchmarks.peers.fresh import FreshPeer
from benchmarks.peers.lineup import KINDS
from benchmarks.peers.places import (
    Listing,
    Peer,
    RestorablePeer,
    RetainingPeer,
    Stack,
    check,
    in_turn,
    place_of,
    topic_of,
)
from benchmarks.peers.reading import Reading
from benchmarks.peers.restoring import Restoring
from benchmarks.peers.retaining import Retaining
from benchmarks.peers.served import ServedPeer
from benchmarks.peers.tidemark_peer import TidemarkPeer
from benchmarks.workload import State, Workload, expected_state

Row = dict[str, Any]
LOAD = -1
"""The round number of the first load; the first batch is 0."""


@dataclass(frozen=True)
class Stage:
    """Batches of one workload, added to the topic that the earlier stages have filled.

    Attributes:
        scenario: the letter of the scenario in issue 8.
        workload: the workload, whose keys are those of the first load.
        rounds: the number of batches; the first one warms up and does not count, unless it is the only one.
        kinds: the systems that are timed; the others catch up later.
    """

    scenario: str
    workload: Workload
    rounds: int
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """One topic with its peers.

    Attributes:
        topic: the number of the topic.
        stages: at least one; all over the same number of keys.
        mode: `warm` runs in this process, `fresh` starts a new process for each run.
        restored: the systems that make a savepoint, restore it and fork it after the stages; `warm` only.
        counted: the number of rounds in which Tidemark's read is compared with a bare count.
        kept: how many points the systems of the last stage keep, one number after another, the largest first.
    """

    topic: int
    stages: tuple[Stage, ...]
    mode: Literal["warm", "fresh"] = "warm"
    restored: tuple[str, ...] = ()
    counted: int = 0
    kept: tuple[int, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """All systems that take part in at least one stage."""
        return tuple(dict.fromkeys(kind for stage in self.stages for kind in stage.kinds))

    @property
    def keepers(self) -> tuple[str, ...]:
        """The systems that keep points, if the case keeps any: those of the last stage, except Tidemark by a server."""
        return tuple(kind for kind in self.stages[-1].kinds if self.kept and kind != "tidemark-server")


def measured(case: Case, stack: Stack) -> Iterator[Row]:
    """Loads the topic, runs rounds in which the peers take turns, each starting with a different peer, and checks them.

    Raises:
        WrongStateError: a peer's state differs from the oracle's.
    """
    create_topic(stack.bootstrap, topic_of(case.topic))
    with ExitStack() as open_peers:
        peers = {kind: open_peers.enter_context(_peer(kind, case, stack)) for kind in case.kinds}
        topic = _Topic(case, stack, peers)
        yield from topic.rounds()
        yield from topic.retained()
        yield from topic.checked()
        yield from topic.reading()
        yield from topic.restored()
    shutil.rmtree(stack.home / topic_of(case.topic))


@dataclass
class _Topic:
    """A case in progress.

    Attributes:
        case: the case to run.
        stack: the services that it uses.
        peers: the peers, by kind.
        sent: all batches that the topic holds.
        taken: how many of the batches each peer has processed.
        marks: the points of each peer that keeps points.
    """

    case: Case
    stack: Stack
    peers: Mapping[str, Peer]
    sent: list[Updates] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)
    marks: dict[str, list[Any]] = field(default_factory=dict)

    def rounds(self) -> Iterator[Row]:
        """Runs the load and all stages."""
        for stage, n, batch in _batches(self.case):
            kinds = stage.kinds if n > LOAD else self.case.kinds
            self._catch_up(kinds)
            self._produce(batch)
            for kind in in_turn(kinds, max(n, 0)):
                place = place_of(kind, self.case.topic, self.stack)
                yield _row(self.case, stage, kind) | {"round": n} | taken(self.peers[kind], place.folder)
                self.taken[kind] = len(self.sent)
                if kind in self.case.keepers:
                    self.marks.setdefault(kind, []).append(cast(RetainingPeer, self.peers[kind]).mark())

    def retained(self) -> Iterator[Row]:
        """Keeps points and drops them (scenarios f and g), if the case asks for it."""
        if not self.case.kept:
            return
        stage = replace(self.case.stages[-1], scenario="g")
        peers = {kind: cast(RetainingPeer, self.peers[kind]) for kind in self.case.keepers}
        places = {kind: place_of(kind, self.case.topic, self.stack) for kind in peers}
        retaining = Retaining(peers, places, self.marks)
        rows = (retaining.measured(self.case.kept), retaining.gone_back(self.case.kept[-1], expected_state(self.sent)))
        for row in itertools.chain(*rows):
            yield _row(self.case, stage, row["kind"]) | row

    def checked(self) -> Iterator[Row]:
        """Checks every row of each peer, except those that were already checked after they dropped points."""
        left = {kind: peer for kind, peer in self.peers.items() if kind not in self.marks}
        if not left:
            return
        self._catch_up(tuple(left))
        wanted = expected_state(self.sent)
        for kind, peer in left.items():
            held = peer.resident() if isinstance(peer, FlinkPeer) else {}
            found = held | {"keys": check(f"{topic_of(self.case.topic)}, {kind}", peer.rows(), wanted)}
            yield _row(self.case, self.case.stages[0], kind) | {"checked": found}

    def reading(self) -> Iterator[Row]:
        """Runs scenario k, if the case asks for it."""
        stage, peer = replace(self.case.stages[0], scenario="k"), self.peers.get("tidemark")
        if not self.case.counted or not isinstance(peer, TidemarkPeer):
            return
        place = place_of("tidemark", self.case.topic, self.stack)
        for row in Reading(peer, place).measured(lambda: len(self._more().keys), self.case.counted):
            self.taken["tidemark"] = len(self.sent)
            yield _row(self.case, stage, row["kind"]) | row

    def restored(self) -> Iterator[Row]:
        """Runs scenario e, for the peers that the case names."""
        stage = replace(self.case.stages[0], scenario="e")
        chosen = {kind: cast(RestorablePeer, self.peers[kind]) for kind in self.case.restored}
        self._catch_up(self.case.restored)

        def produce() -> State:
            self._more()
            return expected_state(self.sent)

        places = {kind: place_of(kind, self.case.topic, self.stack) for kind in chosen}
        for row in Restoring(chosen, places).measured(produce):
            yield _row(self.case, stage, row["kind"]) | row

    def _catch_up(self, kinds: Sequence[str]) -> None:
        """Lets peers process the batches that they have missed, untimed."""
        for kind in (k for k in kinds if self.taken[k] < len(self.sent)):
            self.peers[kind].take()
            self.peers[kind].upkeep()
            self.taken[kind] = len(self.sent)

    def _more(self) -> Updates:
        """Produces one more batch of the first stage's workload."""
        above = max(int(batch.keys.max(initial=0)) for batch in self.sent) + 1
        return self._produce(self.case.stages[0].workload.batch(len(self.sent), above))

    def _produce(self, batch: Updates) -> Updates:
        generator.produce(self.stack.bootstrap, topic_of(self.case.topic), batch)
        self.sent.append(batch)
        return batch


def _batches(case: Case) -> Iterator[tuple[Stage, int, Updates]]:
    """Yields the load, numbered `LOAD`, and the batches of all stages; each stage counts its rounds from 0."""
    workload = case.stages[0].workload
    yield case.stages[0], LOAD, workload.load()
    above = workload.keys
    number = 0
    for stage in case.stages:
        for n in range(stage.rounds):
            yield stage, n, stage.workload.batch(number, above)
            above += stage.workload.fresh
            number += 1


def taken(peer: Peer, folder: str) -> Row:
    """Times a run and its upkeep; returns also the bytes that the run added and the size of the peer's folder."""
    before = Listing.of(folder)
    started = time.perf_counter()
    peer.take()
    seconds = time.perf_counter() - started
    after = Listing.of(folder)
    started = time.perf_counter()
    peer.upkeep()
    row = {
        "seconds": round(seconds, 4),
        "upkeep_seconds": round(time.perf_counter() - started, 4),
        "bytes": after.added(before),
        "folder_bytes": Listing.of(folder).bytes,
    }
    if isinstance(peer, TidemarkPeer | ServedPeer):
        return row | {"compacted": peer.compacted, "phases": peer.phases}
    return row | ({"phases": peer.phases} if isinstance(peer, FlinkPeer) else {})


def _row(case: Case, stage: Stage, kind: str) -> Row:
    workload = stage.workload
    asked = {"size": workload.keys, "updates": workload.updates, "choice": workload.choice}
    return {"scenario": stage.scenario, "mode": case.mode, "kind": kind} | asked


@contextmanager
def _peer(kind: str, case: Case, stack: Stack) -> Iterator[Peer]:
    place = place_of(kind, case.topic, stack)
    Path(place.folder).mkdir(parents=True)
    made = KINDS[kind].make(place, stack.spark) if case.mode == "warm" else FreshPeer(kind, place, stack)
    try:
        yield made
    finally:
        made.close()
