"""Generates sales from a seed, and computes the expected state of them without product code."""

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

START = datetime(2024, 5, 1, tzinfo=UTC)
ACCOUNTS = (None, "", "ann", "bob", "c/d", "ünal", "e\"f'g")


@dataclass
class Sales:
    """The records of each partition in order, and an oracle for any prefix of them."""

    seed: int
    partitions: int = 2
    sent: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._second = 0

    def more(self, count: int) -> list[tuple[int, bytes, int]]:
        """Generates the next records as (partition, value, timestamp in ms), in ascending order of time."""
        made = []
        for _ in range(count):
            partition = self._chance.randrange(self.partitions)
            sale = self._sale()
            self.sent.setdefault(partition, []).append(sale)
            at = datetime.fromisoformat(sale["at"])
            made.append((partition, json.dumps(sale).encode(), int(at.timestamp() * 1000)))
        return made

    def _sale(self) -> dict[str, Any]:
        self._second += self._chance.randrange(60, 4000)
        at = START + timedelta(seconds=self._second)
        return {
            "account": self._chance.choice(ACCOUNTS),
            "shop": self._chance.choice(("north", "south")),
            "till": self._chance.randrange(-1, 2),
            "day": at.date().isoformat(),
            "price": f"{self._chance.randrange(-999, 100_000) / 100:.2f}",
            "note": self._chance.choice((None, "x", "a,b", "line\nbreak")),
            "at": at.isoformat(),
        }

    def upto(self, ends: dict[int, int]) -> list[dict[str, Any]]:
        """The records below the end offset of each partition, in (event time, partition, offset) order."""
        placed = [
            (sale["at"], partition, offset, sale)
            for partition, end in ends.items()
            for offset, sale in enumerate(self.sent.get(partition, [])[:end])
        ]
        return [sale for *_, sale in sorted(placed, key=lambda p: p[:3])]

    def accounts(self, ends: dict[int, int]) -> dict[str, dict[str, Any]]:
        """The state per account, as in the JSON output of the command line."""
        state: dict[str, dict[str, Any]] = {}
        for sale in self.upto(ends):
            if sale["account"] is None:
                continue
            now = state.setdefault(sale["account"], {"sales": 0, "shops": set()})
            now["sales"] += 1
            now["shops"].add(sale["shop"])
            now["last_note"], now["last_at"] = sale["note"], sale["at"]
        return {k: v | {"shops": sorted(v["shops"])} for k, v in state.items()}

    def tills(self, ends: dict[int, int]) -> dict[tuple[str, int, str], dict[str, Any]]:
        """The state per shop, till and day."""
        state: dict[tuple[str, int, str], dict[str, Any]] = {}
        for sale in self.upto(ends):
            now = state.setdefault((sale["shop"], sale["till"], sale["day"]), {"sales": 0, "total": Decimal()})
            now["sales"] += 1
            now["total"] += Decimal(sale["price"])
        return {k: v | {"total": str(v["total"])} for k, v in state.items()}
