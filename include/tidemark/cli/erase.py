"""`tidemark erase`: a key disappears from the live state and from every restore point."""

import shlex
from dataclasses import dataclass
from typing import Annotated

import typer

from tidemark.cli.option_groups import Execute, user_name, with_options
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_rows
from tidemark.context import open_context
from tidemark.coordinator.retention.key_erasure import ErasureRequest
from tidemark.operations import erasure
from tidemark.operations.erasure import ErasureReport, describe_erasure

Operator = Annotated[tuple[str, str], typer.Argument(metavar="PIPELINE UID", help="A pipeline and its operator.")]
Key = Annotated[list[str], typer.Option("--key", help="The key; once per key column, in the order of key_by.")]


@dataclass(frozen=True)
class HowFar:
    """How far an erasure goes, and who asks for it."""

    block: Annotated[bool, typer.Option("--block", help="Later records of the key never count either.")] = False
    now: Annotated[bool, typer.Option("--now", help="Delete old files at once, not with the next sweep.")] = False
    owner: Annotated[str | None, typer.Option("--owner", help="Who answers for it; you without it.")] = None


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("erase")(with_options(erase))


def erase(operator: Operator, key: Key, how: HowFar, execute: Execute = False, as_json: JsonFlag = False) -> None:
    """Erase a key from an operator's state, live and in every restore point; records read so far count no more.

    State files that hold it are written again without it; every other key stays as it is. Operators behind the named
    one lose it too, if their key columns are the same. Dead letters, sinks, topics and exports keep it: they are
    listed.

    Examples:
      tidemark erase flights aircraft --key N14228
      tidemark erase flights routes --key EWR --key ORD --execute
      tidemark erase flights aircraft --key N14228 --block --now --owner privacy --execute --json
    """
    context, (pipeline, uid) = open_context(), operator
    request = ErasureRequest(
        uid=uid, key=tuple(key), forever=how.block, owner=how.owner or (user_name() if execute else ""), now=how.now
    )
    verb = erasure.erase if execute else erasure.plan_erasure
    report = verb(context, pipeline, request)
    if as_json:
        print_json(describe_erasure(report))
        return
    for told in (report, *report.chained):
        _show(told)
    _show_behind(pipeline, report)
    if not execute and any(told.found.files for told in (report, *report.chained)):
        keys = " ".join(f"--key {shlex.quote(text)}" for text in key)
        flags = "".join(f" {flag}" for flag, given in (("--block", how.block), ("--now", how.now)) if given)
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
    show_rows(rows, as_json=False, empty=f"{report.uid} remembers nothing about {name} in any restore point.")
    if done is not None and done.number:
        note(
            f"erased {name} from {len(done.restore_points)} restore points: {done.files} files were written again,"
            f" {done.rows} rows are gone (erasure {done.number})"
        )
        if report.swept is None:
            note("old files go with the next sweep: tidemark retention apply PIPELINE --execute")
        else:
            note(f"deleted {len(report.swept.deleted)} old files and {report.swept.log_files} files of logs")
    _show_remains(report)


def _show_behind(pipeline: str, report: ErasureReport) -> None:
    """What operators behind the named one may hold, and what to type."""
    for uid, (columns, rows) in report.in_part.items():
        note(f"not erased: {rows} rows of {uid}, behind {report.uid}, whose keys hold it: {', '.join(columns)}")
        if rows:
            keys = " ".join(f"--key {column.upper()}" for column in columns)
            note(
                f"Next: tidemark state show {pipeline} {uid}, then tidemark erase {pipeline} {uid} {keys}    (for each)"
            )
    for uid, columns in report.untold.items():
        note(
            f"not searched: {uid}, behind {report.uid}, has other keys ({', '.join(columns)}): nobody can tell"
            f" what came of the key; a backfill from before its first record makes them without it"
        )
    if not report.is_declared:
        note(f"not searched: operators behind {report.uid}: no file declares {pipeline} any more")


def _show_remains(report: ErasureReport) -> None:
    left = report.remains
    for table, rows in left.dead_letters.items():
        note(f"not erased: {rows} dead letters mention the key: {table}")
    for table, rows in left.sinks.items():
        note(f"not erased: {rows} emitted rows hold the key: {table}")
    if left.sinks_to_search:
        note(f"not searched, no column of the key's name: {', '.join(left.sinks_to_search)}")
    if left.lists:
        note(f"not searched, lists of operators have no keys: {', '.join(left.lists)}")
    if left.exports:
        note(f"not reached: copies that were exported: {', '.join(left.exports)}")
    for topic, ends in left.topics.items():
        told = ", ".join(f"{partition}: {end}" for partition, end in sorted(ends.items()))
        note(f"not erased: records in topic {topic} (read up to offset, per partition: {told})")
