"""`ConsoleSink` and `Text()` together, by the real delivery, on a machine that reaches no Kafka."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.disk import DiskPipeline
from tidemark import ConsoleSink, KafkaSource, Pipeline, Process, formats, state
from tidemark.context import Context
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import sinks
from tidemark.settings import load_settings


@dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    text: str


@dataclass(frozen=True)
class Repeat:
    """A line that was seen before."""

    text: str
    times: int


class Seen(state.Keyed):
    """How often."""

    times: int = state.value(0)


def repeats(text: str, lines: Iterator[LogLine], seen: Seen) -> Iterator[Repeat]:
    """From the second time on."""
    for _ in lines:
        seen.times += 1
        if seen.times > 1:
            yield Repeat(text, seen.times)


PIPELINE = Pipeline(
    name="log",
    source=KafkaSource("lines", LogLine, format=formats.Text()),
    operators=[
        Process("repeats", key_by="text", state=Seen, function=repeats, emits=Repeat, sink=ConsoleSink("repeats"))
    ],
    max_dead_letters=1.0,
)


def test_rows_of_completed_checkpoints_are_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = DiskPipeline(tmp_path / "w", PIPELINE, "lines")
    context = Context(load_settings(home=str(tmp_path / "home"), warehouse=str(tmp_path / "w")))
    line.send([(0, "größer".encode(), 0), (0, b"b", 0), (0, "größer".encode(), 0), (0, b"\xff", 0)])
    done = line.checkpoint()
    assert capsys.readouterr().err == "", "nothing before the delivery"
    assert sinks.deliver(context, "log") == 1
    assert sinks.deliver(context, "log") == 0
    out, err = capsys.readouterr()
    assert err == 'repeats log/t1/chk-1/repeats/lines-0-2-0 {"text":"größer","times":2}\n' and out == ""
    assert done.plan.formats == {"records": {"format": "text"}}
    assert [ack.dead_lettered for ack in done.sealed.acks] == [1]
    (shown,) = body_of(sinks.list_sinks(context, "log"))
    assert (shown["guarantee"], shown["topic"], shown["waiting"]["records"]) == ("exactly_once_by_id", None, 0)
    assert sinks.read_sink(context, "log", "repeats").num_rows == 1


def test_a_restore_prints_only_what_no_timeline_has_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tidemark.coordinator.plans.restore_point import RestorePoint
    from tidemark.coordinator.recovery.restore import Recovery

    line = DiskPipeline(tmp_path / "w", PIPELINE, "lines")
    context = Context(load_settings(home=str(tmp_path / "home"), warehouse=str(tmp_path / "w")))
    for word in (b"a", b"a"):
        line.send([(0, word, 0)])
        line.checkpoint()
    assert sinks.deliver(context, "log") == 1
    first = next(c for c in line.coordinator.checkpoints() if c.id == 1)
    Recovery(coordinator=line.coordinator).restore(RestorePoint(checkpoint=first))
    line.send([(0, b"a", 0)])
    line.checkpoint()
    sinks.deliver(context, "log")
    printed = [printed.split(" ", 2)[2] for printed in capsys.readouterr().err.splitlines()]
    assert printed == ['{"text":"a","times":2}', '{"text":"a","times":3}']
