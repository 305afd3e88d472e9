"""`tidemark state diff`: compare the state at two checkpoints, key by key."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.cli.checkpoint_id import named_id
from tidemark.cli.output import JsonFlag, cell, human_bytes, note, print_json, show_rows
from tidemark.cli.plain import plain, python_rows
from tidemark.context import open_context
from tidemark.errors import UsageError
from tidemark.operations import queries
from tidemark.operations.queries import DiffRequest

if TYPE_CHECKING:
    from tidemark.readers.state_diff import Detail, Diff


@dataclass(frozen=True, kw_only=True)
class DetailOptions:
    """Options that select what a diff shows."""

    inserts: Annotated[
        bool, typer.Option("--inserts", help="Distinguish inserted from updated keys. See above for the cost.")
    ] = False
    values: Annotated[
        bool, typer.Option("--values", help="Show both values of each key; includes --inserts. See above for the cost.")
    ] = False
    keys_only: Annotated[bool, typer.Option("--keys-only", hidden=True)] = False
    """The default under its name of 0.1, with its word: `changed` for `upserted`."""

    @property
    def detail(self) -> "Detail":
        """The detail that the options select.

        Raises:
            UsageError: they contradict each other.
        """
        from tidemark.readers.state_diff import Detail

        if self.keys_only and (self.inserts or self.values):
            raise UsageError(
                "--keys-only shows no inserts and no values",
                next="leave out --keys-only, or --inserts and --values.",
            )
        if self.keys_only:
            return Detail.KEYS
        return Detail.VALUES if self.values else Detail.CHANGES if self.inserts else Detail.UPSERTS


def diff(
    operator: Annotated[tuple[str, str], typer.Argument(metavar="PIPELINE UID", help="A pipeline and its operator.")],
    before: Annotated[str, typer.Option("--from", metavar="ID", help="Name the earlier checkpoint, or a savepoint.")],
    after: Annotated[str, typer.Option("--to", metavar="ID", help="Name the later checkpoint, or a savepoint.")],
    shows: DetailOptions,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many keys; the counts include all.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Show which keys of an operator's state were upserted or deleted between two checkpoints.

    A key counts as upserted if a checkpoint between the two touched it, even if its value is the same. A deleted key
    has no state at the later checkpoint; it may never have had any at the earlier one.

    The default reads only the key columns of changed rows. With --inserts, the changed keys are also looked up in the
    older state, to show inserted, updated and deleted keys; if they are spread over it, that reads all of its key
    columns, often most of its bytes. --values also reads the row groups of both states that hold the keys shown. If a
    field has a ttl, windows close, or the declaration has changed, every variant reads both states in full. The last
    line reports the bytes read.

    Examples:
      tidemark state diff flights aircraft --from chk-3 --to chk-9
      tidemark state diff flights aircraft --from before-upgrade --to chk-9 --json
      tidemark state diff flights aircraft --from 3 --to 9 --inserts
      tidemark state diff flights aircraft --from 3 --to 9 --values --limit 5
    """
    pipeline, uid = operator
    detail = shows.detail
    context = open_context()
    first, last = named_id(context, pipeline, before), named_id(context, pipeline, after)
    request = DiffRequest(uid=uid, before=first, after=last, detail=detail, limit=limit)
    found = queries.diff_states(context, pipeline, request)
    rows = [plain(row) for row in python_rows(found.rows, maps="strict")]
    if as_json:
        print_json({"pipeline": pipeline, "uid": uid, **_facts(request, found), "rows": rows})
    else:
        show_rows([_line(row) for row in rows], as_json=False, empty="nothing changed")
    note(_summary(found))
    if shows.keys_only:
        note("--keys-only is deprecated: it is the default now, which says `upserted` for `changed`.")


def _facts(request: DiffRequest, found: "Diff") -> dict[str, object]:
    return {
        "from": f"chk-{request.before}",
        "to": f"chk-{request.after}",
        "counts": found.counts,
        "bytes_read": found.bytes_read,
        "bytes_total": found.bytes_total,
    }


def _line(row: Any) -> dict[str, object]:
    line = {**row["key"], "change": row["change"]}
    if "before" in row:
        line["values"] = _values(row["before"] or {}, row["after"] or {})
    return line


def _values(before: dict[str, object], after: dict[str, object]) -> str:
    fields = [name for name in (after or before) if name != "_changed"]
    sides = ((name, before.get(name), after.get(name)) for name in fields)
    if not before or not after:
        return "; ".join(f"{name} {cell(is_now if after else was)}" for name, was, is_now in sides)
    moved = [f"{name} {cell(was)} → {cell(is_now)}" for name, was, is_now in sides if was != is_now]
    return "; ".join(moved) or "the same values"


def _summary(found: "Diff") -> str:
    counts = ", ".join(f"{n} {change}" for change, n in sorted(found.counts.items())) or "nothing changed"
    shown = "" if found.rows.num_rows == sum(found.counts.values()) else f" (showing the first {found.rows.num_rows})"
    total = human_bytes(found.bytes_total)
    if found.bytes_read is None:
        return f"{counts}{shown}; read both states in full, see --help ({total})"
    return f"{counts}{shown}; read {human_bytes(found.bytes_read)}, the state has {total}"
