"""The same through Kafka, Spark and Delta: letters of two checkpoints, corrected code, one checkpoint that redrives."""

from pathlib import Path

from tests.redrive.test_commands import STRICT, _payment
from tests.support.cli import Command
from tests.support.kafka import Sent, Topics


def test_letters_are_redriven_through_kafka_and_spark(
    topics: Topics, broker: str, spark_server: str, tmp_path: Path
) -> None:
    topic = topics.make(partitions=2)
    tidemark = Command(tmp_path, broker, spark_server)
    source = STRICT.replace('"payments"', f'"{topic}"')
    tidemark.declare(source, file="sums.py", kind="kind: str", more="")

    def run() -> dict[str, int]:
        tidemark("run", "sums").ok()
        return {row["account"]: row["total"] for row in tidemark("state", "show", "sums", "sums", "--json").ok().json}

    topics.produce(topic, [Sent(_payment("a", 1, kind=True), partition=0), Sent(_payment("a", 2), partition=1)])
    assert run() == {"a": 1}
    topics.produce(topic, [Sent(_payment("b", 3), partition=0), Sent(b"{", partition=1)])
    assert run() == {"a": 1}
    tidemark.declare(source, file="sums.py", kind="kind: str | None = None", more="")
    asked = tidemark("dead-letters", "redrive", "sums", "sums", "--execute", "--json").ok().json
    assert (asked["letters"], asked["applied"], asked["refused"]) == (3, 2, {"malformed_json": 1})
    # The records of this one reach a sink through another operator.
    tidemark("dead-letters", "redrive", "sums", "feeds", "--out-of-order", "--execute").ok()
    assert run() == {"a": 3, "b": 3}
    echoes = tidemark("sink", "show", "sums", "echoes", "--json").ok().json
    assert sorted(row["account"] for row in echoes) == ["a", "a", "b"]
    again = tidemark("sink", "source", "sums", "echoes", "--checkpoint", "chk-3", "--where", "account=b")
    assert "redriven" in again.ok().out
    shown = tidemark("checkpoint", "show", "sums", "chk-3", "--json").ok().json
    (ack,) = [a for a in shown["sealed"]["acks"] if a["uid"] == "sums"]
    (feeds,) = [a for a in shown["sealed"]["acks"] if a["uid"] == "feeds"]
    (refused,) = feeds["refused_again"]["by_id"].values()
    assert refused == [{"start": 1, "end": 2}], "the record that is no JSON"
    assert (ack["read"], ack["redriven"], ack["applied"], ack["dead_lettered"]) == (0, 3, 2, 1)
    # A restore that keeps the sinks makes them letters again, and the sink has the rows already.
    tidemark("restore", "sums", "--checkpoint", "chk-2", "--execute").ok()
    tidemark("dead-letters", "redrive", "sums", "feeds", "--out-of-order", "--execute").ok()
    tidemark("run", "sums").ok()
    echoes = tidemark("sink", "show", "sums", "echoes", "--json").ok().json
    assert sorted(row["account"] for row in echoes) == ["a", "a", "b"]
    # The checkpoint comes out the same again, by its own plan.
    replayed = tidemark("checkpoint", "replay", "sums", "chk-3", "--json").ok().json
    assert all(state["equal"] for state in replayed), replayed
