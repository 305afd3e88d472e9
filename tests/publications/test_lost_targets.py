"""Targets that are lost in the middle of a step, at every single write: the next publisher finishes the step."""

import os
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.publications.changelog_ward import ChangelogWard
from tests.publications.postgres_ward import PostgresWard
from tests.publications.published_ward import NAME, PublishedWard
from tests.publications.topic_ward import TopicWard
from tests.support.kafka_broker import running_broker
from tests.support.postgres import INSTALL, Postgres, programs
from tests.support.prerequisites import needs
from tidemark.errors import BrokerError, StoreError
from tidemark.kafka import compacted_topic
from tidemark.operations.publications import publishing
from tidemark.publications.target_folder import TargetFolder

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261127"))
Interrupt = Callable[[pytest.MonkeyPatch, Callable[[], bool]], None]


def _chance() -> random.Random:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    return random.Random(SEED)


def _interrupted_everywhere(ward: PublishedWard, mode: str, interrupt: Interrupt) -> int:
    """Makes steps of which the first loses its target at the first write, the next at the second, and so on.

    `interrupt` has the target ask at each write whether it is lost there. Returns the number of writes of a step.
    """
    ward.checkpoint()
    ward.published("kept")
    for number in count():
        left, lost = iter(range(number, -1, -1)), list[bool]()

        def is_lost(left: Any = left, lost: list[bool] = lost) -> bool:
            lost.append(next(left, None) == 0)
            return lost[-1]

        ward.checkpoint()
        failed = False
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, is_lost)
            try:
                if mode == "rebuild":
                    publishing.rebuild(ward.context, NAME, ward.publication("kept"))
                else:
                    publishing.publish(ward.context, NAME, ward.publication("kept"))
            except StoreError:
                failed = True
        assert failed == any(lost), lost
        ward.published("kept")
        begun = ward.steps("kept").newest(ward.publication("kept"))
        assert begun is not None and ward.told("kept")[0] == begun.number
        if not failed:
            return number
    raise AssertionError


@pytest.mark.parametrize("taken", [False, True], ids=["refused", "taken"])
@pytest.mark.parametrize("mode", ["rebuild", "difference"])
@pytest.mark.parametrize("kind", [PublishedWard, ChangelogWard])
def test_a_folder_may_be_lost_at_each_file(tmp_path: Path, kind: type[PublishedWard], mode: str, taken: bool) -> None:
    def interrupt(patch: pytest.MonkeyPatch, is_lost: Callable[[], bool]) -> None:
        put = TargetFolder.put

        def fails(folder: TargetFolder, path: str, body: bytes) -> Any:
            lost = is_lost()
            found = put(folder, path, body) if taken or not lost else None
            if lost:
                raise StoreError(f"no answer about {path}", safe="the test says so.", next="try again.")
            return found

        patch.setattr(TargetFolder, "put", fails)

    ward = kind(tmp_path, _chance())
    assert _interrupted_everywhere(ward, mode, interrupt) >= 2, "a data file and the entry of the log"
    ward.check()


@needs(programs() is not None, f"no PostgreSQL here: {INSTALL}")
@pytest.mark.parametrize("mode", ["rebuild", "difference"])
def test_a_database_may_be_lost_at_each_statement(tmp_path: Path, postgres_server: Postgres, mode: str) -> None:
    ward = PostgresWard(tmp_path, _chance(), postgres_server)
    sessions = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{ward.database}'"

    def interrupt(patch: pytest.MonkeyPatch, is_lost: Callable[[], bool]) -> None:
        def losing(kind: type, name: str) -> None:
            act = getattr(kind, name)

            def acts(*of: Any, **named: Any) -> Any:
                if is_lost():
                    postgres_server.execute(sessions)
                return act(*of, **named)

            patch.setattr(kind, name, acts)

        losing(psycopg.Cursor, "execute")
        losing(psycopg.Cursor, "copy")
        losing(psycopg.Connection, "commit")

    assert _interrupted_everywhere(ward, mode, interrupt) > 8


@pytest.mark.kafka
def test_a_broker_may_die_in_a_transaction(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_broker(tmp_path_factory.mktemp("dying")) as broker:
        ward = TopicWard(tmp_path, _chance(), broker.address)
        ward.checkpoint()
        ward.published("kept")
        ward.checkpoint()
        produce = compacted_topic.TopicWriter._produce

        def dies(*of: Any) -> None:
            broker.kill()
            produce(*of)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compacted_topic, "STALL", 10.0)
            patch.setattr(compacted_topic.TopicWriter, "_produce", dies)
            with pytest.raises(BrokerError):
                publishing.publish(ward.context, NAME, ward.publication("kept"))
        ward.checkpoint()
        broker.start()
        assert ward.published("kept") == ["difference", "difference"]
        assert ward.told("kept") == (3, 3)
