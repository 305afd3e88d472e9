"""Resolves state of a warehouse as docs/how-to/read-state.md says, with json, hashlib, deltalake and DuckDB alone."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable


def manifests(pipeline: Path) -> dict[int, dict[str, Any]]:
    """Bodies of the manifests of the first timeline, by checkpoint id."""
    found = [json.loads(path.read_text())["body"] for path in sorted((pipeline / "timelines" / "t1").iterdir())]
    return {body["plan"]["id"]: body for body in found}


def text_of(pipeline: Path, sha256: str) -> str:
    """A stored text, verified by its name."""
    raw = (pipeline / "queries" / f"{sha256}.sql").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == sha256
    return raw.decode()


def segments(warehouse: Path, body: dict[str, Any], uid: str) -> Iterator[tuple[str, pa.Table]]:
    """(folder, rows) of each segment: the table at its version, cut to its range."""
    ack = next(a for a in body["sealed"]["acks"] if a["uid"] == uid)
    for s in ack["handle"]["segments"]:
        rows = DeltaTable(str(warehouse / s["path"]), version=s["version"]).to_pyarrow_table()
        at = pc.field("_checkpoint")
        yield s["path"].rpartition("/")[0], rows.filter((at > s["after"]) & (at <= s["through"]))


def resolved(warehouse: Path, name: str, body: dict[str, Any], uid: str) -> list[dict[str, Any]]:
    """One dict per live key."""
    pipeline, texts = warehouse / name, body["plan"]["queries"][uid]
    query, parts = text_of(pipeline, texts["duckdb"]), []
    columns = next(line for line in query.splitlines() if line.startswith("-- its columns: "))
    names = columns.removeprefix("-- its columns: ").removesuffix(".").split(", ")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for folder, rows in segments(warehouse, body, uid):
            connection.register("segment", rows)
            mapping = texts.get(f"duckdb:{folder}")
            made = connection.sql(text_of(pipeline, mapping) if mapping else "FROM segment").to_arrow_table()
            parts.append(made.select(names))
        connection.register("segments", pa.concat_tables(parts, promote_options="permissive"))
        clocks = {
            "event_time_ms": body["sealed"]["facts"]["watermark_ms"],
            "logical_time_ms": body["plan"]["logical_time_ms"],
        }
        asked = {name: value for name, value in clocks.items() if f"${name}" in query}
        return list(connection.sql(query, params=asked).to_arrow_table().to_pylist())
