"""`tidemark bootstrap`: a pipeline that is given the state of another one comes to what that one comes to."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.copies.transfer_pipeline import DECLARATION, UIDS, TransferPipeline, transfer_pipeline
from tests.support.cli import Answer, Command
from tidemark.model.core.offsets import TopicPartition
from tidemark.operations import reads

NOWHERE = ("127.0.0.1:1", "sc://127.0.0.1:1")
TIMELESS = "\n".join(
    line for line in DECLARATION.splitlines() if not any(word in line for word in ("ttl=", "state.mean", "till.last"))
)
"""The market, without what a value alone does not tell: when it was accessed, and how many made a mean."""


class Given:
    """A market that has read something, its states as tables, and a bazaar that is to begin with them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.first: TransferPipeline = transfer_pipeline(folder / "first", declared=TIMELESS).grown(3)
        self.bazaar = self.first.beside(Command(folder / "other", *NOWHERE), "bazaar")
        # Its first checkpoint is made by the command, by this machine's clock, and the next ones go on from there.
        self.bazaar.line.clock.ms = time.time_ns() // 1_000_000
        monkeypatch.setattr("tidemark.context.Context.log", property(lambda context: self.first.log))
        self.tables = {uid: folder / f"{uid}.parquet" for uid in UIDS}
        for uid, path in self.tables.items():
            self.first.tidemark("state", "export", "market", uid, "--to", str(path)).ok()
        ends = reads.get_checkpoint(self.first.tidemark.context, "market").plan.ranges.ends
        self.starts = [word for tp, n in ends.items() for word in ("--starts", f"{tp.topic}:{tp.partition}={n}")]

    def __call__(self, *options: str, starts: list[str] | None = None, **tables: Path) -> Answer:
        named = [f"{uid}={path}" for uid, path in (tables or self.tables).items()]
        return self.bazaar.tidemark("bootstrap", "bazaar", *named, *(starts or self.starts), *options)

    def changed(self, uid: str, change: Any) -> Path:
        """Another table for an operator: its rows, changed."""
        path = self.folder / "changed.parquet"
        pq.write_table(change(pq.read_table(self.tables[uid])), path)
        return path


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    """One of its own."""
    return Given(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    """One that nothing is written to."""
    with pytest.MonkeyPatch.context() as patch:
        yield Given(tmp_path_factory.mktemp("refused"), patch)


def test_what_a_pipeline_is_given_goes_on_as_if_it_had_folded_it(given: Given) -> None:
    delta = given.folder / "rates"
    write_deltalake(str(delta), pq.read_table(given.tables["rates"]))
    given.tables["rates"] = delta
    done = given("--execute", "--json").ok().json
    rows = {uid: len(given.first.rows(uid)) for uid in UIDS}
    assert (done["checkpoint"], done["starts_empty"]) == ("chk-2", [])
    assert {uid: done["rows"][uid] for uid in ("sold", "rates")} == {uid: rows[uid] for uid in ("sold", "rates")}
    assert _states(given.bazaar) == _states(given.first)
    for _ in range(2):
        given.first.send()
        for m in (given.first, given.bazaar):
            m.line.checkpoint()
        assert _states(given.bazaar) == _states(given.first)
    assert all(given.bazaar.line.compact(uid, full=True) for uid in UIDS)
    given.first.send()
    for m in (given.first, given.bazaar):
        m.line.checkpoint()
    assert _states(given.bazaar) == _states(given.first)
    given.bazaar.tidemark("verify", "bazaar", "--content").ok()
    assert list((given.bazaar.tidemark.warehouse / "bazaar").glob("scratch/*")) == []


def _states(of: TransferPipeline) -> dict[str, list[dict[str, Any]]]:
    return {uid: [{k: v for k, v in row.items() if k != "_changed"} for row in of.rows(uid)] for uid in UIDS}


def test_without_execute_every_row_is_looked_at_and_nothing_is_written(given: Given) -> None:
    told = given("--json").ok().json
    assert told["checkpoint"] is None
    assert told["rows"]["sold"] == 3
    assert told["offsets"]["sales-0"] == reads.get_checkpoint(given.first.tidemark.context, "market").plan.ranges.ends[
        TopicPartition("sales", 0)
    ]  # fmt: skip
    assert not given.bazaar.tidemark.warehouse.exists()
    given("--execute").ok()
    given("--execute").failed(4, "t1 has begun")


def test_operators_without_a_table_start_empty_and_starts_are_resolved_once(refused: Given) -> None:
    file = refused.folder / "starts.json"
    file.write_text(json.dumps({"sales": {"0": 3, "1": 0}, "rates": {"0": 1}}))
    for starts in ("earliest", "latest", str(file)):
        told = refused("--json", starts=["--starts", starts], sold=refused.tables["sold"]).ok().json
        assert sorted(told["starts_empty"]) == ["rates", "tills"]
        bounds = refused.first.log.partitions(("sales", "rates"), "read_committed")
        wanted = {str(tp): b.earliest if starts == "earliest" else b.end for tp, b in bounds.items()}
        assert told["offsets"] == (wanted if starts != str(file) else {"sales-0": 3, "sales-1": 0, "rates-0": 1})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns(["cents"]), "cents BIGINT is missing"),
        (lambda t: t.set_column(1, "sales", pa.array(["1"] * t.num_rows)), "sales is string, not BIGINT"),
        (lambda t: pa.concat_tables([t, t.slice(0, 1)]), "keys occur twice"),
        (
            lambda t: t.set_column(0, "item", pa.array([None, *t["item"].to_pylist()[1:]], pa.string())),
            "a key is null: item",
        ),
        (
            lambda t: t.set_column(2, "cents", pa.array([2**63] * t.num_rows, pa.uint64())),
            "a value does not fit",
        ),
    ],
    ids=["missing", "type", "twice", "null", "range"],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(
    refused: Given, change: Any, words: str
) -> None:
    for options in ((), ("--execute",)):
        refused(*options, sold=refused.changed("sold", change)).failed(2, words, "cannot be the state of sold")
    assert not (refused.bazaar.tidemark.warehouse / "bazaar" / "state").exists()


def test_a_folder_is_read_without_what_a_writer_left_aside(refused: Given, tmp_path: Path) -> None:
    rows, folder = pq.read_table(refused.tables["sold"]), tmp_path / "sold"
    for n, part in enumerate(
        ("part-0.parquet", "more/part-1.parquet", "_temporary/0/part-1.parquet", ".part-0.parquet")
    ):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.slice(n % 2, 1 + n % 2), folder / part)
    assert refused("--json", sold=folder).ok().json["rows"]["sold"] == rows.num_rows == 3
    pq.write_table(rows.slice(1, 2).drop_columns(["cents"]), folder / "more/part-1.parquet")
    refused(sold=folder).failed(2, "cannot be the state of sold", "cents")
    (folder / "more/part-1.parquet").write_bytes(b"PAR1 and no more")
    refused(sold=folder).failed(1, "sold cannot be read")
    (folder / "part-0.parquet").unlink()
    (folder / "more/part-1.parquet").unlink()
    refused(sold=folder).failed(3, "no table at")


def test_what_a_value_alone_does_not_tell_is_asked_for_by_name(refused: Given) -> None:
    refused.bazaar.tidemark.declare(DECLARATION, file="bazaar.py", name="bazaar")
    refused().failed(2, "state of sold, tills expires", "--at")
    refused("--at", "2024-05-09T00:00:00Z").failed(2, "mean__sum BIGINT is missing", "mean__count BIGINT is missing")
    refused(nothing=refused.tables["sold"]).failed(2, "has no operator 'nothing'")
    refused(sold=refused.folder / "no.parquet").failed(2, "expires")
    refused.bazaar.tidemark.declare(TIMELESS, file="bazaar.py", name="bazaar")
    refused(sold=refused.folder / "no.parquet").failed(3, "no table at")


def test_starts_that_do_not_fit_are_told_by_partition(refused: Given) -> None:
    refused(starts=["--starts", "sales:0=1", "--starts", "sales:1=0"]).failed(2, "rates-0 is not named")
    refused(starts=[*refused.starts, "--starts", "other:0=1"]).failed(2, "other-0 is not read")
    high = [word.replace("rates:0=", "rates:0=9") for word in refused.starts]
    refused(starts=high).failed(2, "rates-0 holds [0, ")
    for wrong in ("middle", "sales=0", "sales:x=1", "sales:0=-1"):
        refused(starts=["--starts", wrong]).failed(2)
