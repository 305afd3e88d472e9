"""A year of real flights, one run per month (scenario i).

Only Tidemark can stop reading at a record's time, so the months are written to the topic one by one, untimed, and every
system processes all records in the topic. Tidemark then processes the year again as a scheduler's backfill would, with
all months in the topic.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.flights import Months, month_end
from benchmarks.peers.lineup import KINDS
from benchmarks.peers.measuring import Row, taken
from benchmarks.peers.places import Peer, Stack, check, in_turn, place_of, topic_of
from benchmarks.peers.tidemark_peer import TidemarkPeer
from benchmarks.peers.titles import WHOLE


@dataclass(frozen=True)
class Backfill:
    """One topic with its peers.

    Attributes:
        topic: the number of the topic.
        kinds: the systems that take part; `WHOLE` follows once the topic holds all months.
        months: the number of months.
    """

    topic: int
    kinds: tuple[str, ...]
    months: int = 12

    def measured(self, stack: Stack) -> Iterator[Row]:
        """Yields a row for every month and peer, then a row for every checked state.

        Raises:
            WrongStateError: a peer's state differs from the oracle's.
        """
        flights, topic = Months(self.months), topic_of(self.topic)
        wanted = flights.expected_state()
        asked = {"size": len(wanted.keys), "updates": int(wanted.updates.sum()), "choice": "flights"}
        create_topic(stack.bootstrap, topic)
        with ExitStack() as open_peers:
            peers = {kind: open_peers.enter_context(closing(self._peer(kind, stack))) for kind in (*self.kinds, WHOLE)}
            sent = flights.records()
            for month, records in enumerate(sent, 1):
                generator.send(stack.bootstrap, topic, records)
                for kind in in_turn(self.kinds, month):
                    yield asked | self._month(kind, peers[kind], month, stack)
            for month, records in enumerate(sent, 1):
                yield asked | self._month(WHOLE, peers[WHOLE], month, stack)
                assert cast(TidemarkPeer, peers[WHOLE]).records == len(records), f"month {month} was cut elsewhere"
            for kind, peer in peers.items():
                keys = check(f"{topic}, {kind}", peer.rows(), wanted)
                yield asked | {"scenario": "i", "kind": kind, "checked": {"keys": keys}}
        shutil.rmtree(stack.home / topic)

    def _peer(self, kind: str, stack: Stack) -> Peer:
        place = place_of(kind, self.topic, stack)
        Path(place.folder).mkdir(parents=True)
        return KINDS["tidemark" if kind == WHOLE else kind].make(place, stack.spark)

    def _month(self, kind: str, peer: Peer, month: int, stack: Stack) -> Row:
        if isinstance(peer, TidemarkPeer):
            peer.until = month_end(month)
        return {"scenario": "i", "kind": kind, "month": month} | taken(peer, place_of(kind, self.topic, stack).folder)
