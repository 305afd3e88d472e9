"""`tidemark state lineage` and `sink source`: trace a row to its checkpoint, its DAG run and its records."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.cli.checkpoint_id import At, AtSavepoint, chosen_id, parse_id
from tidemark.cli.output import JsonFlag, note, print_json, show_fields, show_rows
from tidemark.context import Context, open_context
from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import body_of

if TYPE_CHECKING:
    from tidemark.answers.row_sources import ChangeOrigin, RecordPage, RowOrigin, ShownText, SinkOrigin, SinkRowOrigin

_SOME = 5
"""Ranges of redriven records that are shown; `--json` has all of them."""
RecordLimit = Annotated[
    int,
    typer.Option("--records", min=0, max=100, metavar="N", help="Also read up to N of the row's records from Kafka."),
]


def state_lineage(
    operator: Annotated[tuple[str, str], typer.Argument(metavar="PIPELINE UID", help="A pipeline and its operator.")],
    key: Annotated[list[str], typer.Option(help="Set the key: give it once per key column, in the order of key_by.")],
    checkpoint: At = None,
    savepoint: AtSavepoint = None,
    records: RecordLimit = 0,
    as_json: JsonFlag = False,
) -> None:
    """Show which checkpoint last changed a key, in which DAG run, and from which offsets.

    With --records, it reads those offsets and shows records of the key, within 100,000 records, 16 MiB and 5 seconds.

    Examples:
      tidemark state lineage flights aircraft --key N14228
      tidemark state lineage flights aircraft --key N14228 --checkpoint chk-2 --records 5
      tidemark state lineage flights routes --key EWR --key ORD --savepoint before-upgrade --json
    """
    from tidemark.web import row_origin, source_lookup

    context, (pipeline, uid) = open_context(), operator
    origin = row_origin.find_origin(context, pipeline, uid, key, chosen_id(context, pipeline, checkpoint, savepoint))
    changed = origin.changed
    found = None
    if records and changed.known:
        query = source_lookup.RecordQuery(uid=uid, key=tuple(key), limit=records)
        found = source_lookup.read_records(context, pipeline, changed.checkpoint, query)
    if as_json:
        print_json({**_body(origin), "records": found})
        return
    show_fields({"as_of": origin.as_of, **origin.row, **_change_facts(changed)}, as_json=False)
    _show_records(found)
    if changed.parent is not None:
        note(f"Next: the same with --checkpoint chk-{changed.parent}    (the change before).")


def sink_source(
    sink: Annotated[tuple[str, str], typer.Argument(metavar="PIPELINE NAME", help="A pipeline and its sink.")],
    checkpoint: Annotated[str, typer.Option(metavar="ID", help="The row's _checkpoint.")],
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Match rows with this value; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Show at most this many rows.")] = 20,
    records: RecordLimit = 0,
    as_json: JsonFlag = False,
) -> None:
    """Show which DAG run emitted rows of a sink, and for which records.

    The row of a window that closed has many records: --records reads them back through the checkpoints that added them.

    Examples:
      tidemark sink source flights knock_on_delays --checkpoint chk-3 --where origin=JFK
      tidemark sink source flights knock_on_delays --checkpoint chk-3 --where _offset=4711 --records 1
      tidemark sink source punctuality hourly_departures --checkpoint chk-3 --where origin=EWR --records 50
    """
    from tidemark.web import sink_rows

    context, (pipeline, name) = open_context(), sink
    origin = sink_rows.find_sink_origin(context, pipeline, name, parse_id(checkpoint), _pairs(where or []), limit)
    changed = origin.changed
    found = list(_records_of(context, pipeline, origin, records)) if changed.known else []
    if as_json:
        print_json({**_body(origin), "records": found})
        return
    show_fields({"sink": name, "uid": origin.uid, **_change_facts(changed)}, as_json=False)
    show_rows([{**row.row, "record": _place(row)} for row in origin.rows], as_json=False)
    for one in found:
        _show_records(one)
    if origin.more:
        note("more rows match: add a --where, or raise --limit")


def _place(row: "SinkRowOrigin") -> str:
    """The record of a row, or what became due."""
    due = row.due
    return f"{row.partition} {row.offset}" if due is None else f"{due.what} of {due.operator} at {due.at}"


def _records_of(context: Context, pipeline: str, origin: "SinkOrigin", most: int) -> "Iterator[RecordPage]":
    """Reads the records for which rows were emitted: of a window, those of every checkpoint that added to it."""
    from tidemark.web import sink_rows, source_lookup

    for row in origin.rows:
        if most <= 0:
            return
        if row.due is None:
            query = source_lookup.RecordQuery(partition=row.partition, start=row.offset, end=row.offset + 1, limit=1)
            pages = [source_lookup.read_records(context, pipeline, origin.changed.checkpoint, query)]
        else:
            pages = sink_rows.read_due_records(context, pipeline, origin, row, most) if row.due.key else []
        yield from pages
        most -= max(1, sum(len(page.records) for page in pages))


def _body(origin: "RowOrigin | SinkOrigin") -> dict[str, Any]:
    """The answer as JSON values; of a change whose manifest was deleted, only the id and name are known."""
    body: dict[str, Any] = body_of(origin)
    if not origin.changed.known:
        body["changed"] = {name: body["changed"][name] for name in ("checkpoint", "name", "known")}
    return body


def _change_facts(changed: "ChangeOrigin") -> dict[str, Any]:
    if not changed.known:
        return {"changed_by": f"{changed.name}, whose manifest was deleted"}
    facts = {
        "changed_by": changed.name,
        "timeline": changed.timeline,
        "run": changed.run,
        "offsets": {r.partition: f"[{r.start}, {r.end})" for r in changed.ranges},
    }
    if changed.redriven:
        some = [f"{r.partition} [{r.start}, {r.end})" for r in changed.redriven[:_SOME]]
        more = len(changed.redriven) - len(some)
        facts["redriven"] = ", ".join([*some, *([f"and {more} more"] if more else [])])
    return facts


def _show_records(found: "RecordPage | None") -> None:
    if found is None:
        return
    for held in found.ranges:
        if held.why is not None:
            is_empty = held.kept_start == held.kept_end
            left = "nothing" if is_empty else f"only [{held.kept_start}, {held.kept_end})"
            note(f"{held.partition} [{held.start}, {held.end}): {left} is left. {held.why}.")
    rows = [
        {
            "partition": r.partition,
            "offset": r.offset,
            "timestamp": r.timestamp,
            "key": _text(r.key),
            "value": _text(r.value),
        }
        for r in found.records
    ]
    show_rows(rows, as_json=False, empty="no record matches")
    note(f"searched {found.looked_at} records; stopped by: {found.stopped_by}")


def _text(shown: "ShownText | None") -> str | None:
    if shown is None:
        return None
    text = shown.text if shown.encoding == "utf-8" else f"0x{shown.text}"
    return f"{text} … ({shown.size} bytes)" if shown.cut else text


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    wrong = [text for text, (column, equals, _) in zip(texts, pairs, strict=True) if not (column and equals)]
    if wrong:
        raise UsageError(f"{wrong[0]!r} is not of the form COLUMN=VALUE", next="write for example origin=JFK.")
    return {column: value for column, _, value in pairs}
