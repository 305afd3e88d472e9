"""Exports in a bucket: races, crashes, and faults on the way."""

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import Popen

import pytest

from tests.copies.export_places import BucketPlace, FolderPlace, exported, imported, silenced
from tests.copies.transfer_pipeline import SEED, TransferPipeline
from tests.support.cli import TIMEOUT, Answer
from tests.support.s3 import CREDENTIALS, one_store
from tests.support.s3_proxy import Fault, S3Request, Times, is_put
from tidemark.errors import StoreError
from tidemark.model.retention.export_manifest import Export
from tidemark.ports import PutOutcome, UncertainPut
from tidemark.storage.s3_folder import S3Folder, open_folder
from tidemark.storage.s3_location import S3Place
from tidemark.transfer.export_bucket import S3Export

MIB = 2**20


pytestmark = [pytest.mark.slow, one_store]


@pytest.fixture(scope="module")
def contents(made: TransferPipeline, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What a local export holds, without its `export.json`."""
    local = FolderPlace(tmp_path_factory.mktemp("local") / "export")
    made.tidemark("export", "market", "--to", local.at).ok()
    return sorted(raw for path, raw in local.files().items() if path != "export.json")


@pytest.fixture
def folder(place: BucketPlace) -> Iterator[S3Folder]:
    """The folder as the code sees it, with somebody's credentials."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        endpoint = place.bucket.server.proxy.address
        with open_folder(S3Place(bucket=place.bucket.name, prefix=place.prefix, endpoint=endpoint)) as found:
            yield found


def _is_whole(place: BucketPlace) -> bool:
    """Whether all that is there is named by `export.json`, which is there."""
    files = place.files()
    named = {f.path for f in Export.decode(files["export.json"]).files}
    return set(files) == named | {"export.json"}


@pytest.mark.parametrize(
    "rule",
    [
        Times(Fault.DROP_REPLY, 1, "PUT", r"export\.json$"),
        Times(409, 1, "PUT", r"export\.json$"),
        Times(503, 2, "PUT", r"export\.json$"),
        Times(Fault.DROP_REPLY, 1, "PUT", "begun$"),
        Times(Fault.NOT_SENT, 2, "PUT", r"\.parquet$"),
        Times(Fault.DROP_REPLY, 2, "PUT", r"\.parquet$"),
        Times(500, 2, "PUT|GET", r"\.parquet$"),
        Times(503, 1, "GET", r"export\.json$"),
        Times(Fault.CUT_BODY, 3, "GET", r"stored/sold/.*\.parquet$"),
        Times(503, 1, "HEAD"),
    ],
    ids=lambda rule: f"{getattr(rule.fault, 'name', rule.fault)}-{rule.method}-{rule.path}",
)
def test_faults_that_pass_leave_no_trace(
    made: TransferPipeline, contents: list[bytes], other: TransferPipeline, place: BucketPlace, rule: Times
) -> None:
    proxy = place.bucket.server.proxy
    reading = "GET" in rule.method
    # The export reads, too: it finds no `export.json`, and compares what it has sent.
    for line in (exported, imported) if reading else (exported,):
        proxy.rule = planted = replace(rule)
        line(made if line is exported else other, place).ok()
        assert not planted.left
    assert _is_whole(place)
    assert sorted(raw for path, raw in place.files().items() if path != "export.json") == contents


def test_a_reply_that_was_lost_is_settled_by_what_is_there(folder: S3Folder, place: BucketPlace) -> None:
    proxy = place.bucket.server.proxy
    proxy.rule = Times(Fault.DROP_REPLY, 1, "PUT")
    assert folder.put_if_absent("one", b"mine") is PutOutcome.WON
    puts = [path for method, path in proxy.requests if method == "PUT"]
    assert len(puts) > 1, "boto3 has put it again, and was told that it exists"
    assert folder.put_if_absent("one", b"yours") is PutOutcome.LOST
    assert place.files() == {"one": b"mine"}
    # Nobody else's put was lost, but one that came first while this one was repeated.
    place.put("two", b"theirs")
    proxy.rule = Times(Fault.NOT_SENT, 1, "PUT")
    assert folder.put_if_absent("two", b"mine") is PutOutcome.LOST


def test_of_many_puts_at_once_one_wins(folder: S3Folder, place: BucketPlace) -> None:
    started, outcomes = threading.Barrier(12), dict[bytes, PutOutcome]()

    def put(body: bytes) -> None:
        started.wait()
        outcomes[body] = folder.put_if_absent("export.json", body)

    threads = [threading.Thread(target=put, args=(f"writer {n}".encode(),)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [body for body, outcome in outcomes.items() if outcome is PutOutcome.WON]
    assert place.files() == {"export.json": winner}


def test_two_exports_to_one_place_have_one_winner_and_it_stays_whole(
    made: TransferPipeline, place: BucketPlace
) -> None:
    """Of different checkpoints, so that every file differs; held until both of them put their last object."""
    both = threading.Barrier(2)

    def rule(request: S3Request) -> None:
        if is_put(request, "export.json"):
            both.wait(TIMEOUT)

    place.bucket.server.proxy.rule = rule
    line = ("export", "market", "--to", place.at, "--checkpoint")
    running = {n: made.tidemark.started(*line, str(n), **place.variables) for n in (1, 3)}
    answers = {n: silenced(_ended(process)) for n, process in running.items()}
    [winner] = [n for n, answer in answers.items() if answer.code == 0]
    [loser] = answers.keys() - {winner}
    answers[loser].failed(4, "another export to", "completed first")
    assert Export.decode(place.files()["export.json"]).checkpoint == winner
    assert _is_whole(place), "the loser has removed what it had sent, and nothing else"


def _ended(process: "Popen[str]") -> Answer:
    out, err = process.communicate(timeout=TIMEOUT)
    return Answer(process.returncode, out, err)


@pytest.mark.parametrize("at", ["first", "some", "export.json", "behind"])
def test_an_export_that_was_killed_is_none_and_the_next_one_succeeds(
    made: TransferPipeline, other: TransferPipeline, place: BucketPlace, at: str
) -> None:
    proxy, chance = place.bucket.server.proxy, random.Random(SEED)
    files = 12
    dies = {"first": 1, "some": chance.randrange(2, files)}.get(at, files + 1)
    with _killed_by(made, place) as kill:
        count = -2  # the probe is put twice

        def rule(request: S3Request) -> Fault | None:
            nonlocal count
            count += request.method == "PUT"
            # On a busy machine a put may be sent twice, so the last one is known by its name.
            is_last, is_counted = is_put(request, "export.json"), request.method == "PUT" and count >= dies
            if not (is_last or (is_counted and dies < files)):
                return None
            kill()
            return Fault.DROP_REPLY if at == "behind" else Fault.NOT_SENT

        proxy.rule = rule
    proxy.reset()
    left = place.files()
    if at == "behind":
        assert _is_whole(place), "its last object was put; only nobody was told"
        exported(made, place).failed(2, "holds an export")
    else:
        assert "export.json" not in left
        assert len(left) >= dies - 1
        imported(other, place, "--execute").failed(3, "no export in")
        exported(made, place).ok()
        assert {path: place.files()[path] for path in left} == left, "what was left is not touched"
    imported(other, place, "--execute").ok()
    assert other.states() == made.states()
    if at != "behind":
        assert list(made.tidemark.warehouse.glob("*/scratch/*")) == [], "swept by the next one"


@contextmanager
def _killed_by(made: TransferPipeline, place: BucketPlace) -> Iterator[Callable[[], None]]:
    """Gives what kills an export with a process of its own, which begins when the block has ended."""
    running: list[Popen[str]] = []
    started = threading.Event()

    def kill() -> None:
        assert started.wait(TIMEOUT)
        running[0].send_signal(signal.SIGKILL)
        running[0].wait(TIMEOUT)

    yield kill
    running.append(made.tidemark.started("export", "market", "--to", place.at, **place.variables))
    started.set()
    assert _ended(running[0]).code == -signal.SIGKILL


def test_an_export_that_was_interrupted_removes_what_it_sent(made: TransferPipeline, place: BucketPlace) -> None:
    stopped = threading.Event()

    def rule(request: S3Request) -> None:
        if is_put(request, "part-00000.parquet") and not stopped.is_set():
            stopped.set()
            running.send_signal(signal.SIGINT)

    place.bucket.server.proxy.rule = rule
    running = made.tidemark.started("export", "market", "--to", place.at, **place.variables)
    answer = _ended(running)
    assert (answer.code, answer.out) == (130, ""), answer.err
    assert place.files() == {}
    assert list(made.tidemark.warehouse.glob("*/scratch/*")) == []


def test_bytes_that_changed_on_the_way_are_noticed_before_there_is_anexport(
    made: TransferPipeline, place: BucketPlace
) -> None:
    def rule(request: S3Request) -> None:
        if is_put(request, "state/sold.parquet"):
            request.body = request.body[:-1] + bytes([request.body[-1] ^ 1])

    place.bucket.server.proxy.rule = rule
    exported(made, place).failed(1, "state/sold.parquet", "returns different bytes than were sent")
    assert place.files() == {}


def test_a_store_that_ignores_conditions_is_refused(made: TransferPipeline, place: BucketPlace) -> None:
    def rule(request: S3Request) -> None:
        request.headers.pop("if-none-match", None)

    place.bucket.server.proxy.rule = rule
    exported(made, place).failed(1, "If-None-Match is ignored")
    assert place.files() == {}


def test_where_nobody_answers_whether_it_is_complete_its_files_stay(
    made: TransferPipeline, other: TransferPipeline, place: BucketPlace, folder: S3Folder, tmp_path: Path
) -> None:
    """The last object is written, and then the store falls silent."""
    local, proxy = FolderPlace(tmp_path / "local"), place.bucket.server.proxy
    made.tidemark("export", "market", "--to", local.at).ok()
    impatient = replace(folder, patient=folder.quick)

    def rule(request: S3Request) -> Fault | None:
        if is_put(request, "export.json"):
            return Fault.DROP_REPLY
        return Fault.NOT_SENT if request.path.endswith("export.json") else None

    proxy.rule = rule
    with pytest.raises(StoreError, match="the outcome of the write is unknown"):
        S3Export(impatient).publish(
            Export.decode(local.files()["export.json"]), local.folder, "export.3.0123456789abcdef"
        )
    proxy.rule = Times(Fault.NOT_SENT, 10**6)
    with pytest.raises(UncertainPut):
        impatient.put_if_absent("nothing", b"x")
    proxy.reset()
    assert _is_whole(place)
    imported(other, place, "--execute").ok()
    assert other.states() == made.states()


def test_a_large_file_goes_in_parts_and_comes_back_the_same(
    folder: S3Folder, place: BucketPlace, tmp_path: Path
) -> None:
    proxy, large = place.bucket.server.proxy, tmp_path / "large"
    large.write_bytes(random.Random(SEED).randbytes(20 * MIB + 1))
    proxy.rule = Times(503, 2, "PUT", "partNumber=2")
    folder.send("large", large)
    assert len({path for _, path in proxy.requests if "partNumber=" in path}) == 3
    assert folder.size("large") == 20 * MIB + 1
    proxy.rule = Times(Fault.CUT_BODY, 1, "GET")
    folder.fetch("large", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == large.read_bytes()
