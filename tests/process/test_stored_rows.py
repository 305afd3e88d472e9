"""What a process leaves in its run, row by row: values, entries, touches, tombstones; of touched keys only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state
from tidemark.testing import BARRIER, Replayed, replay

DAY = datetime(2020, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Act:
    """One record: steps as `name` or `name:key:number`, done in order."""

    key: str
    steps: list[str]
    at: datetime


@dataclass(frozen=True)
class Told:
    """What the function saw."""

    seen: str


def one(key: str, *steps: str, hour: int = 0) -> Act:
    """A record, so many hours after the first day began."""
    return Act(key, list(steps), DAY + hour * HOUR)


def _done(kept: Any, step: str) -> str | None:
    name, _, rest = step.partition(":")
    key, _, number = rest.partition(":")
    if name == "set":
        kept.value = int(key)
    elif name == "get":
        return f"{kept.value}"
    elif name == "add":
        kept.items.append(int(key))
    elif name == "put":
        kept.entries[key] = int(number)
    elif name == "pop":
        kept.entries.pop(key)
    elif name == "empty":
        kept.entries.clear()
    elif name == "look":
        return f"{kept.entries.get(key)}"
    elif name == "clear":
        kept.clear()
    return None


def pipeline(ttl: state.Ttl | None = None) -> Pipeline:
    """One operator with a value, a list and a map, all with the same ttl."""

    class Kept(state.Keyed):
        value: int | None = state.value(None, ttl=ttl)
        items: list[int] = state.list(ttl=ttl)
        entries: dict[str, int] = state.map(ttl=ttl)

    def act(key: str, acts: Iterator[Act], kept: Kept) -> Iterator[Told]:
        for one in acts:
            yield from (Told(seen) for step in one.steps if (seen := _done(kept, step)) is not None)

    made = Process("kept", key_by="key", state=Kept, function=act, emits=Told, sink=DeltaSink("told"))
    return Pipeline(name="rows", source=KafkaSource("acts", Act, event_time="at"), operators=[made])


def acted(*batches: Sequence[Act], ttl: state.Ttl | None = None) -> Replayed:
    """A checkpoint per batch."""
    return replay(pipeline(ttl), [step for batch in batches for step in (batch, BARRIER)])


def run_of(done: Replayed, checkpoint: int) -> list[tuple[Any, ...]]:
    """The rows that a checkpoint wrote: kind, key, then (field, entry) of an entry, or the value and the list."""
    handle = done.checkpoints[checkpoint - 1].handles["kept"]
    rows: list[Mapping[str, Any]] = [r for r in done._tables.rows(handle) if r["_changed"] == checkpoint]
    return [
        (r["_kind"], r["key"], r["_field"], r["entries__key"], r["entries"])
        if r["_field"]
        else (r["_kind"], r["key"], r["value"], [e["value"] for e in r["items"] or ()])
        for r in rows
    ]


def accessed(done: Replayed, checkpoint: int) -> dict[str, int]:
    """Access time of the value per key, in hours since the first day, of the rows that a checkpoint wrote."""
    handle = done.checkpoints[checkpoint - 1].handles["kept"]
    held: Sequence[Mapping[str, Any]] = done._tables.rows(handle)
    rows = [r for r in held if r["_changed"] == checkpoint and not r["_field"]]
    return {r["key"]: (r["value__at"] - int(DAY.timestamp() * 1000)) // 3_600_000 for r in rows}


def test_an_update_writes_a_value_a_clear_a_tombstone_and_the_newest_wins() -> None:
    done = acted([one("a", "set:1"), one("b", "set:5")], [one("a", "set:2")], [one("a", "clear")])
    assert run_of(done, 1) == [("value", "a", 1, []), ("value", "b", 5, [])]
    assert run_of(done, 2) == [("value", "a", 2, [])], "b was not touched"
    assert run_of(done, 3) == [("tombstone", "a", None, [])]
    states = [{k: s.value for k, s in done.state("kept", c).items()} for c in done.checkpoints]
    assert states == [{"a": 1, "b": 5}, {"a": 2, "b": 5}, {"b": 5}]


def test_a_changed_list_is_written_whole_as_a_value_of_its_key() -> None:
    done = acted([one("a", "add:1", "add:2")], [one("a", "add:3")], [one("b", "set:1")])
    assert run_of(done, 2) == [("value", "a", None, [1, 2, 3])]
    assert [row[1] for row in run_of(done, 3)] == ["b"]
    assert done.state("kept")["a"].items == [1, 2, 3]


def test_a_map_writes_changed_entries_and_a_tombstone_per_entry_that_went() -> None:
    done = acted(
        [one("a", "put:x:1", "put:y:2", "put:z:3")],
        [one("a", "put:y:9", "look:z")],
        [one("a", "pop:x")],
        [one("a", "empty")],
    )
    entries = [[row for row in run_of(done, n) if len(row) == 5] for n in (1, 2, 3, 4)]
    assert [row[0] for row in entries[0]] == ["value"] * 3
    assert entries[1] == [("value", "a", "entries", "y", 9)], "neither x nor z, which was only looked at"
    assert entries[2] == [("tombstone", "a", "entries", "x", None)]
    assert sorted(entries[3]) == [("tombstone", "a", "entries", n, None) for n in ("y", "z")]
    seen = [{k: s.entries for k, s in done.state("kept", c).items()} for c in done.checkpoints]
    assert seen == [{"a": {"x": 1, "y": 2, "z": 3}}, {"a": {"x": 1, "y": 9, "z": 3}}, {"a": {"y": 9, "z": 3}}, {}]


def test_a_cleared_key_is_a_tombstone_that_hides_all_entries_and_new_ones_begin_anew() -> None:
    done = acted([one("a", "set:1", "put:x:1")], [one("a", "clear")], [one("a", "put:y:2")])
    assert ("tombstone", "a", None, []) in run_of(done, 2)
    assert done.state("kept", done.checkpoints[1]) == {}
    assert done.state("kept")["a"].entries == {"y": 2}


def _ttl(**changes: Any) -> state.Ttl:
    return state.Ttl(ttl=3 * HOUR, **changes)


def _touched(update: Any) -> Replayed:
    """Written at hour 0, read at hour 2, looked at by everybody at hour 4."""
    return acted(
        [one("a", "set:7")],
        [one("a", "get", hour=2)],
        [one("clock", "set:1", hour=4)],
        ttl=_ttl(update=update),
    )


def test_a_read_renews_by_a_touch_row_on_read_and_write_only() -> None:
    read = _touched("on_read_and_write")
    assert run_of(read, 2) == [("value", "a", 7, [])], "the same value"
    assert (accessed(read, 1), accessed(read, 2)) == ({"a": 0}, {"a": 2})
    assert read.state("kept")["a"].value == 7
    written = _touched("on_create_and_write")
    assert run_of(written, 2) == []
    assert set(written.state("kept")) == {"clock"}
    never = _touched("disabled")
    assert run_of(never, 2) == []
    assert never.state("kept")["a"].value == 7


def _expired(visibility: Any) -> Replayed:
    """Set twice, read by the function four hours later, and once more."""
    return acted(
        [one("a", "set:1"), one("b", "set:2")],
        [one("a", "set:7", hour=1)],
        [one("a", "get", hour=5)],
        [one("a", "get", hour=5)],
        ttl=_ttl(visibility=visibility),
    )


def test_an_expired_key_that_is_read_becomes_a_tombstone_in_either_visibility() -> None:
    for visibility in ("never_return_expired", "return_expired_if_not_cleaned_up"):
        done = _expired(visibility)
        assert run_of(done, 3) == [("tombstone", "a", None, [])], visibility
        assert run_of(done, 4) == []


def test_with_the_filter_off_the_newest_expired_value_is_shown_once_and_never_an_older_one() -> None:
    hidden, shown = _expired("never_return_expired"), _expired("return_expired_if_not_cleaned_up")
    assert [row["seen"] for row in hidden.emitted("kept")] == ["None", "None"]
    assert [row["seen"] for row in shown.emitted("kept")] == ["7", "None"]
    assert hidden.state("kept") == {}
    assert {key: kept.value for key, kept in shown.state("kept").items()} == {"b": 2}, "nobody has touched b"


def test_expired_entries_of_a_touched_key_become_tombstones_and_other_keys_are_left_alone() -> None:
    done = acted(
        [one("a", "put:old:1", "add:1"), one("b", "put:old:1")],
        [one("a", "put:new:2", hour=4)],
        [one("a", "look:old", "add:2", hour=5)],
        ttl=_ttl(),
    )
    entries = [row for n in (2, 3) for row in run_of(done, n) if len(row) == 5]
    assert ("tombstone", "a", "entries", "old", None) in entries
    assert [row[1] for row in entries] == ["a"] * len(entries), "b has expired too, and nobody has met it"
    assert [row for row in run_of(done, 3) if len(row) == 4] == [("value", "a", None, [2])]
    kept = done.state("kept")
    assert (kept["a"].entries, kept["a"].items) == ({"new": 2}, [2])
    assert set(kept) == {"a"}
