"""What only a store in a bucket can meet: lost replies, errors in bursts, and stores that ignore conditions."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.s3 import SECRETS, Bucket
from tests.support.s3_proxy import Fault, S3Request, Times, is_put, strips_conditions
from tidemark.cli import doctor
from tidemark.errors import NotFoundError, StoreError
from tidemark.ports import PutOutcome, UncertainPut
from tidemark.settings import load_settings
from tidemark.storage.s3_folder import S3Folder, open_folder
from tidemark.storage.s3_store import S3Store, refuse_racing_winners, refuse_unconditional

pytestmark = pytest.mark.slow

KEY = "ids/1.json"
REQUESTS = 40
"""More than a budget of retries that the requests of a client share would serve."""


@pytest.fixture
def store(folder: S3Folder) -> S3Store:
    return S3Store(folder, "bank")


@pytest.fixture
def ids() -> "Iterator[str]":
    """Fresh ids, in order."""
    return (f"{n:032x}" for n in count(1))


@pytest.mark.parametrize(
    ("fault", "times"), [(Fault.DROP_REPLY, 1), (Fault.DROP_REPLY, 2), (Fault.NOT_SENT, 1), (503, 1), (409, 2)]
)
def test_a_put_whose_reply_is_lost_has_won_and_another_ones_has_lost(
    store: S3Store, bucket: Bucket, fault: Fault | int, times: int
) -> None:
    fails = Times(fault, times, "PUT", KEY)
    bucket.server.proxy.rule = fails
    assert store.put_if_absent(KEY, b"mine") is PutOutcome.WON
    assert fails.met == times
    bucket.server.proxy.rule = Times(fault, times, "PUT", KEY)
    assert store.put_if_absent(KEY, b"yours") is PutOutcome.LOST
    assert store.get(KEY) == b"mine"


def test_a_store_that_falls_silent_behind_a_put_leaves_its_outcome_unknown(
    store: S3Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stored_and_silent(request: S3Request) -> Fault | int | None:
        if is_put(request, KEY):
            return Fault.DROP_REPLY
        return 403 if request.path.partition("?")[0].endswith(KEY) else None

    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    bucket.server.proxy.rule = stored_and_silent
    with pytest.raises(UncertainPut):
        store.put_if_absent(KEY, b"mine")
    bucket.server.proxy.reset()
    assert store.get(KEY) == b"mine", "it had happened"


def test_every_request_waits_for_a_store_that_is_down_however_many_have_waited_before(
    store: S3Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    assert store.get(KEY) is None
    monkeypatch.setattr("botocore.endpoint.time.sleep", waited.append)
    bucket.server.proxy.rule = Times(Fault.NOT_SENT, 10**6)
    for _ in range(REQUESTS):
        waited.clear()
        with pytest.raises(StoreError, match="S3 does not answer"):
            store.get(KEY)
        assert 30 < sum(waited) < 90
    bucket.server.proxy.rule = Times(Fault.NOT_SENT, 20)
    assert store.get(KEY) is None


def test_a_store_that_has_never_answered_is_an_error_soon(
    folder: S3Folder, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time.sleep", waited.append)
    bucket.server.proxy.rule = Times(Fault.NOT_SENT, 10**6)
    with open_folder(folder.place) as fresh, pytest.raises(StoreError, match="S3 does not answer"):
        fresh.get(KEY)
    assert sum(waited) < 2


def test_a_full_store_is_an_error_at_once_and_a_plain_repetition_repairs(store: S3Store, bucket: Bucket) -> None:
    store.put_if_absent(KEY, b"before")
    bucket.server.proxy.requests.clear()
    bucket.server.proxy.rule = Times(507, 10**6, "PUT")
    with pytest.raises(StoreError, match=r"the store is full \(XMinioStorageFull\): could not write s3://") as caught:
        store.put_if_absent("ids/2.json", b"mine")
    assert [method for method, _ in bucket.server.proxy.requests] == ["PUT"], "more puts find no room either"
    assert "every completed checkpoint and export is intact" in str(caught.value)
    assert "make room" in caught.value.next
    assert (store.get(KEY), store.get("ids/2.json")) == (b"before", None)
    bucket.server.proxy.reset()
    assert store.put_if_absent("ids/2.json", b"mine") is PutOutcome.WON


@pytest.mark.parametrize("status", [403, 507])
def test_a_put_that_won_before_the_store_refused_has_won(store: S3Store, bucket: Bucket, status: int) -> None:
    first = Times(Fault.DROP_REPLY, 1, "PUT", KEY)

    def stored_then_refused(request: S3Request) -> Fault | int | None:
        if not is_put(request, KEY):
            return None
        return first(request) or status

    bucket.server.proxy.rule = stored_then_refused
    assert store.put_if_absent(KEY, b"mine") is PutOutcome.WON
    assert store.get(KEY) == b"mine"


def test_a_body_that_breaks_off_is_read_again_and_one_that_always_does_is_told(store: S3Store, bucket: Bucket) -> None:
    store.put_if_absent(KEY, b"x" * 5000)
    bucket.server.proxy.rule = Times(Fault.CUT_BODY, 2, "GET")
    assert store.get(KEY) == b"x" * 5000
    bucket.server.proxy.rule = lambda request: Fault.CUT_BODY if request.method == "GET" else None
    with pytest.raises(StoreError, match="break off"):
        store.get(KEY)


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_planned(
    folder: S3Folder, bucket: Bucket, ids: Iterator[str]
) -> None:
    refuse_unconditional(folder, lambda: next(ids))
    bucket.server.proxy.requests.clear()
    refuse_unconditional(folder, lambda: next(ids))
    assert len([m for m, _ in bucket.server.proxy.requests if m == "PUT"]) == 1, (
        "one request, where it was asked before"
    )
    bucket.server.proxy.rule = strips_conditions
    for check in (refuse_unconditional, refuse_racing_winners):
        with pytest.raises(StoreError, match="ignores If-None-Match") as caught:
            check(folder, lambda: next(ids))
        assert "conditional puts" in caught.value.next


def test_a_store_that_lets_two_writers_win_a_race_is_refused(
    folder: S3Folder, bucket: Bucket, ids: Iterator[str]
) -> None:
    """It compares with what was there when the request arrived, as some stores did."""
    refuse_racing_winners(folder, lambda: next(ids))

    def racy(request: S3Request) -> None:
        if "/race-" in request.path:
            strips_conditions(request)

    bucket.server.proxy.rule = racy
    with pytest.raises(StoreError, match="8 of 8 writers won one name"):
        refuse_racing_winners(folder, lambda: next(ids))
    bucket.server.proxy.reset()
    assert [path for path, _ in folder.list_sizes("")] == [".tidemark/conditional-put"], "nothing else is left"


def test_doctor_tells_whether_the_bucket_will_do(bucket: Bucket, folder: S3Folder, tmp_path: Path) -> None:
    settings = load_settings(
        home=str(tmp_path), warehouse=f"s3://{bucket.name}/house", s3_endpoint=bucket.server.proxy.address
    )
    (found,) = [f for f in doctor.examine(settings) if f.check == "warehouse"]
    assert (found.verdict, found.detail) == ("ok", f"s3://{bucket.name}/house lets only one writer create each name")
    bucket.server.proxy.rule = strips_conditions
    (found,) = [f for f in doctor.examine(settings) if f.check == "warehouse"]
    assert found.verdict == "missing" and "If-None-Match" in found.detail
    assert found.remedy is not None and "conditional puts" in found.remedy


def test_a_bucket_that_is_not_there_is_told(bucket: Bucket, folder: S3Folder, ids: Iterator[str]) -> None:
    bucket.server.client.delete_bucket(Bucket=bucket.name)
    with pytest.raises(NotFoundError, match=f"no bucket {bucket.name}"):
        refuse_unconditional(folder, lambda: next(ids))


RACER = """
import sys
from tidemark.storage.s3_folder import open_folder
from tidemark.storage.s3_location import S3Place
from tidemark.storage.s3_store import S3Store
with open_folder(S3Place(bucket=sys.argv[1], prefix="house", endpoint=sys.argv[2])) as folder:
    store = S3Store(folder, "bank")
    print("ready", flush=True)
    sys.stdin.read(1)
    print(*(k for k in range(10) if store.put_if_absent(f"ids/{k}.json", sys.argv[3].encode()).value == "won"))
"""


def test_processes_race_through_lost_replies_and_one_wins_each_name(store: S3Store, bucket: Bucket) -> None:
    bucket.server.proxy.rule = Times(Fault.DROP_REPLY, 12, "PUT")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, bucket.name, bucket.server.proxy.address, str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("g")
        racer.stdin.flush()
    won = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert sorted(int(k) for found in won for k in found) == list(range(10))
    for n, found in enumerate(won):
        assert all(store.get(f"ids/{k}.json") == str(n).encode() for k in found)


def test_no_error_and_no_name_holds_a_secret(store: S3Store, bucket: Bucket) -> None:
    bucket.server.proxy.rule = lambda request: 403
    with pytest.raises(StoreError) as caught:
        store.get(KEY)
    told = f"{caught.value} {caught.value.__cause__} {store!r}"
    assert not [secret for secret in SECRETS if secret in told]
