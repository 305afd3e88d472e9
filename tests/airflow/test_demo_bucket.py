"""The store of `make demo WAREHOUSE=s3`: a process that the stack can stop, where one of racing writers wins."""

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

from devstack import processes
from devstack.demo import bucket, store
from tidemark.errors import TidemarkError
from tidemark.settings import load_settings


def winners(application: store.Application, writers: int = 8) -> int:
    """How many of racing conditional puts of one name win."""
    won: list[str] = []
    environ: dict[str, Any] = {"HTTP_IF_NONE_MATCH": "*"}
    threads = [
        threading.Thread(target=application, args=(environ, lambda status: won.append(status))) for _ in range(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return won.count("200")


def test_of_racing_puts_one_wins_where_the_store_looks_before_it_writes() -> None:
    def racy(patience: float) -> store.Application:
        there: set[str] = set()
        all_have_looked = threading.Barrier(8)

        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            found = "it" in there
            with contextlib.suppress(threading.BrokenBarrierError):
                all_have_looked.wait(patience)
            there.add("it")
            start_response("412" if found else "200")
            return []

        return answer

    assert winners(racy(patience=15)) == 8, "or this shows nothing"
    assert winners(store.one_by_one(racy(patience=0.3))) == 1


def test_other_requests_do_not_wait_for_one_another() -> None:
    meet = threading.Barrier(2)

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        meet.wait(10)
        return []

    gated = store.one_by_one(answer)
    other = threading.Thread(target=gated, args=({}, None))
    other.start()
    gated({}, None)
    other.join(10)
    assert not other.is_alive()


def test_the_store_is_a_process_of_the_stack_and_its_end_is_noticed(tmp_path: Path) -> None:
    from tidemark.environment import open_bucket_folder
    from tidemark.model.core.names import S3Url
    from tidemark.storage.s3_store import refuse_racing_winners

    settings = load_settings(root=tmp_path, home=tmp_path / "home")
    told = bucket.variables(settings)
    try:
        assert bucket.variables(settings) == told, "it runs already"
        there = load_settings(root=tmp_path, s3_endpoint=told["TIDEMARK_S3_ENDPOINT"])
        with (
            mock.patch.dict(os.environ, told),
            open_bucket_folder(there, S3Url.parsed(told["TIDEMARK_WAREHOUSE"])) as folder,
        ):
            refuse_racing_winners(folder, lambda: uuid4().hex)
    finally:
        processes.stop(processes.marked_strays(Path(told["TIDEMARK_HOME"])))
    with pytest.raises(TidemarkError, match="the demo's bucket has gone"):
        bucket.variables(settings)
