"""A changed declaration on the command line: refused before Spark, said at once, or carried over."""

from pathlib import Path

import pytest

from tests.cli.conftest import DECLARATION, TillPipeline

NOWHERE = {"TIDEMARK_SPARK": "sc://127.0.0.1:1"}
"""Nobody listens there: whoever asks Spark first fails in other words."""


def _declare(line: TillPipeline, *changes: tuple[str, str]) -> None:
    text = Path(DECLARATION).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    line.tidemark.declare(text, topic=line.topic)


ACCOUNTS = '        Fold("accounts", key_by="account", state=Account),\n'


@pytest.fixture
def before(line: TillPipeline) -> dict[str, bytes]:
    """What the store holds after at least one checkpoint."""
    if not line.made:
        line.run()
    return line.tidemark.objects("till")


def test_all_that_does_not_fit_is_refused_before_spark_is_asked(line: TillPipeline, before: dict[str, bytes]) -> None:
    changes = [('state.distinct("shop")', 'state.list("shop")'), ('"till", "day")', '"till")')]
    _declare(line, *changes)
    told = line.tidemark("run", "till", **NOWHERE).failed(2, "the pipeline does not fit its state")
    assert "accounts.shops: distinct('shop') became list('shop')" in told.err
    assert "tills.key: (shop STRING, till BIGINT, day DATE) became (shop STRING, till BIGINT)" in told.err
    assert line.tidemark.objects("till") == before


def test_a_removed_operator_is_refused_until_it_is_let_go_and_comes_back_empty(
    line: TillPipeline, before: dict[str, bytes]
) -> None:
    _declare(line, (ACCOUNTS, ""))
    line.tidemark("run", "till", **NOWHERE).failed(2, "accounts: is no longer declared", "--allow-non-restored-state")
    assert line.tidemark.objects("till") == before
    told = line.tidemark("run", "till", "--allow-non-restored-state", "--json").ok()
    assert [segment["path"] for segment in told.json["left_behind"]["accounts"]] == ["till/state/accounts/t1-1/runs"]
    assert "state_left_behind" in told.err
    assert set(told.json["keys"]) == {"tills"}
    line.tidemark("state", "show", "till", "accounts", "--json").failed(3, "accounts")
    assert line.tidemark("state", "show", "till", "accounts", "--checkpoint", "chk-1", "--json").ok().json

    line.tidemark.declare(DECLARATION, topic=line.topic)  # it comes back
    line.run()
    assert line.tidemark("state", "show", "till", "accounts", "--json").ok().json == []


def test_a_renamed_field_and_an_added_one_are_read_at_once(line: TillPipeline, before: dict[str, bytes]) -> None:
    tills = line.tidemark("state", "show", "till", "tills", "--json").ok().json
    _declare(
        line,
        ('    total: Annotated[Decimal, Precision(38, 2)] = state.sum("price")',
         '    taken: Annotated[Decimal, Precision(38, 2)] = state.sum("price", was="total")\n'
         '    last_note: str | None = state.latest("note")'),
    )  # fmt: skip
    line.run()
    found = line.tidemark("state", "show", "till", "tills", "--json").ok().json
    assert [
        {k: v for k, v in row.items() if k not in ("taken", "last_note")} | {"total": row["taken"]} for row in found
    ] == [dict(row) for row in tills]
    assert {row["last_note"] for row in found} == {None}
    again = line.tidemark("state", "show", "till", "tills", "--checkpoint", "chk-1", "--json").ok().json
    assert "total" in again[0]
