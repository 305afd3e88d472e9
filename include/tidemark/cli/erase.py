"""`tidemark erase`: remove a key from the live state and from every restore point."""

import shlex
from dataclasses import dataclass
from typing import Annotated

import typer

from tidemark.cli.option_groups import Execute, with_options
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_rows
from tidemark.context import open_context
from tidemark.coordinator.retention.key_erasure import ErasureRequest
from tidemark.environment import user_name
from tidemark.operations import erasure
from tidemark.operations.erasure import ErasureReport, describe_erasure

Operator = Annotated[tuple[str, str], typer.Argument(metavar="PIPELINE UID", help="A pipeline and its operator.")]
Key = Annotated[
    list[str], typer.Option("--key", help="Set the key: give it once per key column, in the order of key_by.")
]


@dataclass(frozen=True)
class EraseOptions:
    """The scope of an erasure, and its owner."""

    block: Annotated[bool, typer.Option("--block", help="Also ignore all later records of the key.")] = False
    now: Annotated[bool, typer.Option("--now", help="Delete the old files now, not in the next sweep.")] = False
    owner: Annotated[str | None, typer.Option("--owner", help="Name who is responsible (default: you).")] = None
    by: Annotated[
        list[str] | None, typer.Option("--by", help="Of a FlatMap: name the column of its rows for each --key.")
    ] = None


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("erase")(with_options(erase))


def erase(
    operator: Operator, key: Key, options: EraseOptions, execute: Execute = False, as_json: JsonFlag = False
) -> None:
    """Erase a key from an operator's state, sinks and dead letters, in every restore point.

    Files that hold the key are rewritten without it; all other keys keep their values, and records read so far no
    longer count for the key. A downstream operator with the same key columns is erased too. Topics, exports, and the
    sinks and dead letters of other operators are not changed: the output lists those that still hold the key. A FlatMap
    has no key: --by names the column of its rows.

    Examples:
      tidemark erase flights aircraft --key N14228
      tidemark erase flights routes --key EWR --key ORD --execute
      tidemark erase weather departures --by flight --key 1141 --execute
      tidemark erase flights aircraft --key N14228 --block --now --owner privacy --execute --json
    """
    context, (pipeline, uid) = open_context(), operator
    owner = options.owner or (user_name() if execute else "")
    by = tuple(options.by or ())
    request = ErasureRequest(uid=uid, key=tuple(key), forever=options.block, owner=owner, now=options.now, by=by)
    verb = erasure.erase if execute else erasure.plan_erasure
    report = verb(context, pipeline, request)
    if as_json:
        print_json(describe_erasure(report))
        return
    reports = (report, *report.chained)
    for each in reports:
        _show(each)
        for name, place in each.residue.publications.items():
            note(f"not erased yet: {place}, whose older versions hold the key until its clean-up")
            note(f"Next: tidemark publication run {pipeline} {name}")
    _show_behind(pipeline, report)
    if not execute and any(each.found.files for each in reports):
        named = [*(("--by", column) for column in by), *(("--key", text) for text in key)]
        keys = " ".join(f"{option} {shlex.quote(text)}" for option, text in named)
        flags = "".join(f" {flag}" for flag, is_set in (("--block", options.block), ("--now", options.now)) if is_set)
        note(f"Next: tidemark erase {pipeline} {uid} {keys}{flags} --execute")


def _show(report: ErasureReport) -> None:
    found, done = report.found, report.done
    rows = [
        {
            "restore point": name,
            "files": len(held),
            "rows": sum(found.files[table][path].rows for table, path in held),
            "bytes": human_bytes(sum(found.files[table][path].file.file.size for table, path in held)),
        }
        for name, held in found.by_entry.items()
    ]
    name = "/".join(report.key)
    show_rows(rows, as_json=False, empty=f"{report.uid} has nothing of {name} in any restore point.")
    if done is not None and done.number:
        note(
            f"erased {name} from {len(done.restore_points)} restore points: {done.files} files rewritten,"
            f" {done.rows} rows removed (erasure {done.number})"
        )
        if report.swept is None:
            note("the next sweep deletes the old files: tidemark retention apply PIPELINE --execute")
        else:
            note(f"deleted {len(report.swept.deleted)} old files and {report.swept.log_files} log files")
    _show_remains(report)


def _show_behind(pipeline: str, report: ErasureReport) -> None:
    """Lists the downstream operators that may still hold the key, and the commands to run."""
    for uid, (columns, rows) in report.in_part.items():
        note(
            f"not erased: {rows} rows of {uid}, downstream of {report.uid}, hold the key as part of theirs:"
            f" {', '.join(columns)}"
        )
        if rows:
            keys = " ".join(f"--key {column.upper()}" for column in columns)
            note(
                f"Next: tidemark state show {pipeline} {uid}, then tidemark erase {pipeline} {uid} {keys}    (for each)"
            )
    for uid, columns in report.untold.items():
        note(
            f"not searched: {uid}, downstream of {report.uid}, has other keys ({', '.join(columns)}), so its rows"
            f" cannot be traced to the key; a backfill from before the key's first record rebuilds them without it"
        )
    if not report.is_declared:
        note(f"not searched: operators downstream of {report.uid}, because no file declares {pipeline} any more")


def _show_remains(report: ErasureReport) -> None:
    left = report.residue
    for table, rows in left.dead_letters.items():
        note(f"not erased: {rows} dead letters of another operator belong to the key: {table}")
    for table, rows in left.sinks.items():
        note(f"not erased: {rows} rows emitted by another operator hold the key: {table}")
    if left.sinks_to_search:
        note(f"not searched, because no column has the key's name: {', '.join(left.sinks_to_search)}")
    if left.lists:
        note(f"not searched, because operator list state has no keys: {', '.join(left.lists)}")
    if left.exports:
        note(f"not erased: exported copies: {', '.join(left.exports)}")
    for topic, ends in left.topics.items():
        offsets = ", ".join(f"{partition}: {end}" for partition, end in sorted(ends.items()))
        note(f"not erased: records in topic {topic} (read up to offset, per partition: {offsets})")
