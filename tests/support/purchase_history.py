"""The input of the crash sweep, and an oracle that computes the expected state from it without product code."""

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

LARGE = 2500
"""The minimum in cents of a purchase that the process emits."""
START = datetime(2024, 5, 1, tzinfo=UTC)
UNDECODABLE = (b"{", b"[]", b'{"account": 1}', b"\xff\xfe", b'{"cents": "7"}')


@dataclass
class PurchaseHistory:
    """Generates records from a seed, and computes the state that follows from them."""

    seed: int
    sent: list[tuple[int, int, bytes]] = field(default_factory=list)
    _offsets: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def batch(self, count: int, partitions: int) -> list[tuple[int, bytes]]:
        """Generates the next records as (partition, value). The first one and a few others cannot be decoded.

        Every batch contains dead letters for every operator, so that a run over it reaches each crash point.
        """
        made = []
        for number in range(count):
            partition = self._chance.randrange(partitions)
            offset = self._offsets.get(partition, 0)
            self._offsets[partition] = offset + 1
            value = self._chance.choice(UNDECODABLE) if number == 0 else self._value()
            self.sent.append((partition, offset, value))
            made.append((partition, value))
        return made

    def _value(self) -> bytes:
        if self._chance.random() < 0.03:
            return self._chance.choice(UNDECODABLE)
        event = {
            "account": self._chance.choice([None, "ann", "bob", "cy", "dee", "eve"]),
            "shop": self._chance.choice(["north", "south", "west"]),
            "cents": self._chance.randrange(-500, 5000),
            "note": self._chance.choice([None, "a", "b", "ü"]),
            "at": (START + timedelta(seconds=self._chance.randrange(10_000))).isoformat(),
        }
        return json.dumps(event).encode()

    def decoded(self) -> list[dict[str, Any]]:
        """The records that can be decoded, in (event time, partition, offset) order."""
        found = []
        for partition, offset, value in self.sent:
            if value.startswith(b'{"account"') and b'"shop"' in value:
                body = json.loads(value)
                found.append({**body, "at": datetime.fromisoformat(body["at"]), "place": (partition, offset)})
        return sorted(found, key=lambda r: (r["at"], r["place"]))

    def accounts(self) -> dict[str, dict[str, Any]]:
        """The state per account."""
        state: dict[str, dict[str, Any]] = {}
        for r in self.decoded():
            if r["account"] is None:
                continue
            s = state.setdefault(
                r["account"], {"events": 0, "cents": 0, "least": r["cents"], "first_shop": r["shop"], "shops": set()}
            )
            s["events"] += 1
            s["cents"] += r["cents"]
            s["least"] = min(s["least"], r["cents"])
            s["last_note"] = r["note"]
            s["shops"].add(r["shop"])
        return {k: {**s, "shops": sorted(s["shops"])} for k, s in state.items()}

    def shops(self) -> dict[str, dict[str, Any]]:
        """The state per shop."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for r in self.decoded():
            groups.setdefault(r["shop"], []).append(r)
        return {
            shop: {
                "events": len(rs),
                "mean_cents": sum(r["cents"] for r in rs) / len(rs),
                "last_at": max(r["at"] for r in rs),
            }
            for shop, rs in groups.items()
        }

    def seen(self) -> dict[str, dict[str, Any]]:
        """The process state per account: the number of large purchases, and the purchases per shop."""
        state: dict[str, dict[str, Any]] = {}
        for r in self.decoded():
            if r["account"] is None:
                continue
            s = state.setdefault(r["account"], {"large": 0, "by_shop": {}})
            s["large"] += r["cents"] >= LARGE
            s["by_shop"][r["shop"]] = s["by_shop"].get(r["shop"], 0) + 1
        return state

    def large(self) -> list[tuple[str, int, int, int]]:
        """(account, cents, partition, offset) of each large purchase, sorted."""
        decoded = [r for r in self.decoded() if r["account"] is not None and r["cents"] >= LARGE]
        return sorted((r["account"], r["cents"], *r["place"]) for r in decoded)
