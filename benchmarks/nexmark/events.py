"""Events of an auction house: people, auctions and bids in the shares of Nexmark (1 : 3 : 46), from a seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

START = datetime(2024, 1, 1, tzinfo=UTC)
SHARES = ["persons"] + ["auctions"] * 3 + ["bids"] * 46
STATES = ("OR", "ID", "CA", "WA", "AZ", "WY")
CITIES = ("Portland", "Boise", "Oakland", "Redmond", "Phoenix", "Cheyenne")
FIRST_AUCTION, CATEGORIES = 1000, (10, 11, 12, 13, 14)


@dataclass(frozen=True)
class Person:
    """A person who joins the house."""

    id: int
    name: str
    email: str
    city: str
    state: str
    date_time: datetime


@dataclass(frozen=True)
class Auction:
    """An item for sale until `expires`."""

    id: int
    item: str
    initial: int
    reserve: int
    date_time: datetime
    expires: datetime
    seller: int
    category: int


@dataclass(frozen=True)
class Bid:
    """An offer; the price is in cents."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime


Event = Person | Auction | Bid


def events(count: int, seed: int, per_second: int = 50, longest_s: int = 20) -> Iterator[tuple[str, Event]]:
    """Yields the topic of each event, and the event, in the order of event times.

    Args:
        count: how many.
        seed: the same seed gives the same events.
        per_second: how many in a second of event time. A third of that many of the newest people and auctions take
            part.
        longest_s: how long an auction lasts at most. No two expire at the same time.
    """
    chance, recent = random.Random(seed), per_second // 3
    people, auctions, ends = 0, 0, set[datetime]()
    for n in range(count):
        at = START + timedelta(milliseconds=n * 1000 // per_second)
        kind = SHARES[n % len(SHARES)]
        if kind == "persons":
            state = chance.randrange(len(STATES))
            name = f"person {people}"
            yield kind, Person(people, name, f"{people}@example.com", CITIES[state], STATES[state], at)
            people += 1
        elif kind == "auctions":
            expires = at + timedelta(milliseconds=chance.randrange(1000, longest_s * 1000))
            while expires in ends:
                expires += timedelta(milliseconds=1)
            ends.add(expires)
            number, first = FIRST_AUCTION + auctions, chance.randrange(1, 1000)
            seller, category = _newest(chance, people, recent), chance.choice(CATEGORIES)
            yield kind, Auction(number, f"item {number}", first, first * 2, at, expires, seller, category)
            auctions += 1
        else:
            auction = FIRST_AUCTION + _newest(chance, auctions, recent)
            price = int(10 ** (chance.random() * 5)) + 1
            channel = chance.choice(("Google", "Facebook", "Baidu", "Apple"))
            yield (
                kind,
                Bid(auction, _newest(chance, people, recent), price, channel, f"https://example.com/{auction}", at),
            )


def _newest(chance: random.Random, count: int, recent: int) -> int:
    return chance.randrange(max(0, count - recent), count)
