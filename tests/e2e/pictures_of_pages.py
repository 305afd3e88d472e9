"""The pictures of the pages, made anew after `make demo`: `python -m tests.e2e.pictures_of_pages`, with the stack up.

Each view in both themes, in 256 colours, which makes them a third as large. `screenshots` has those of Airflow's own
pages.
"""

import base64
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np

from devstack.credentials import ADMIN, load_credentials
from tests.e2e.chromium import Page, chromium
from tidemark.cli.airflow_api import AirflowApi
from tidemark.settings import load_settings

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SIZE = (1280, 900)
KEY = "N14228"
PLACE = "/plugin/checkpoints#pipeline=flights&view="
VIEWS = (
    ("checkpoints-overview", "overview", "p99.9"),
    ("checkpoints-history", "history", "chk-1"),
    ("checkpoints-compare", "compare&left=timeline:t1&right=live", "Keys:"),
    ("checkpoints-timelines", "timelines", "end-of-june"),
    ("checkpoints-retention", "retention", "one of the last"),
    ("checkpoints-letters", "letters&operator=aircraft&reason=null_key", "the newest first"),
    ("checkpoints-restore", "overview&form=restore&from=chk-6", "leave the live timeline"),
    ("checkpoints-columns", "columns&column=aircraft.worst_delay", "arrival_delay"),
)
"""Pictures of a view as its address opens it, and a text to wait for."""


def main() -> None:
    """Makes all pictures."""
    settings = load_settings()
    login = load_credentials(settings.home)
    assert login is not None, "tidemark up"
    api = AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password)
    runs = api.get("dags/flights/dagRuns", state="success", order_by="-run_after", limit=1)["dag_runs"]
    for theme, behind in (("light", ""), ("dark", "-dark")):
        with chromium(settings.airflow_address, api._token, SIZE, theme) as page:
            for name in views(page, quote(runs[0]["dag_run_id"], safe="")):
                image = page.call("Page.captureScreenshot", format="png")["data"]
                (IMAGES / f"{name}{behind}.png").write_bytes(small(base64.b64decode(image)))


def views(page: Page, run: str) -> Iterator[str]:
    """Goes from view to view; yields what each picture is called."""
    for name, place, text in VIEWS:
        _go(page, f"{PLACE}{place}", text)
        yield name
    _go(page, f"{PLACE}timelines&form=transform&from=end-of-june", "Add a query for…")
    page.picks("Add a query for…", "routes")
    page.sees("Returns, per key")
    yield "checkpoints-transform"
    _go(page, f"{PLACE}checkpoint&checkpoint=6", "manifest")
    page.click("Operators", "button")
    page.sees("rotations")
    yield "checkpoint-operators"
    _go(page, f"{PLACE}origin&uid=aircraft&key={KEY}", "Show the records")
    page.click("Show the records", "button")
    page.wait("!!document.querySelector('[data-records] table')")
    yield "checkpoint-records"
    page.click("Hide the records", "button")
    page.wait("!!document.querySelector('[data-changed]')")
    yield "checkpoint-row-to-source"
    _go(page, f"/dags/flights/runs/{run}/plugin/checkpoint", "operators")
    page.script("document.querySelector('[data-node=\"state aircraft\"]').focus()")
    page.press("Enter", 13)
    yield "checkpoint-lineage"
    _go(page, "/", "No pipeline is late")
    yield "home"


def _go(page: Page, path: str, text: str) -> None:
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=page.base + path)
    page.sees(text)


def small(png: bytes) -> bytes:
    """The same picture in 256 colours; any other becomes the nearest of these."""
    pixels = _pixels(png)
    high, wide, _ = pixels.shape
    colours, places, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    kept = _palette(colours.astype(int), counts)
    nearest = np.array([((kept - c) ** 2).sum(1).argmin() for c in colours.astype(int)], np.uint8)
    lines = np.hstack([np.zeros((high, 1), np.uint8), nearest[places.reshape(-1)].reshape(high, wide)])
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)),
        (b"PLTE", kept.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in parts
    )


def _palette(colours: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The 128 most frequent colours, and one by one those that are farthest from what is kept."""
    kept = list(colours[np.argsort(-counts)[:128]])
    away = np.array([min(((c - k) ** 2).sum() for k in kept) for c in colours])
    while len(kept) < 256 and away.max() > 0:
        kept.append(colours[away.argmax()])
        away = np.minimum(away, ((colours - kept[-1]) ** 2).sum(1))
    return np.array(kept)


def _pixels(png: bytes) -> np.ndarray:
    """Red, green and blue of an 8-bit PNG that is not interlaced."""
    at, data, wide, high, size = 8, b"", 0, 0, 3
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        at += length + 12
        if kind == b"IHDR":
            wide, high, _, colour = struct.unpack(">IIBB", body[:10])
            size = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += body
    raw = np.frombuffer(zlib.decompress(data), np.uint8).reshape(high, 1 + wide * size)
    above = np.zeros(wide * size, np.int32)
    found = np.zeros((high, wide * size), np.uint8)
    for n, line in enumerate(raw):
        above = _unfiltered(int(line[0]), line[1:].astype(np.int32), above, size)
        found[n] = above
    return found.reshape(high, wide, size)[:, :, :3]


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray, size: int) -> np.ndarray:
    """A line without the filter of the PNG format that it was written with."""
    if kind == 0:
        return line
    if kind == 1:
        return (np.cumsum(line.reshape(-1, size), axis=0) % 256).reshape(-1)
    if kind == 2:
        summed: np.ndarray = (line + above) % 256
        return summed
    made = np.zeros_like(line)
    for x in range(len(line)):
        left, corner = (int(made[x - size]), int(above[x - size])) if x >= size else (0, 0)
        up = int(above[x])
        guess = (left + up) // 2 if kind == 3 else min((left, up, corner), key=lambda v: abs(left + up - corner - v))
        made[x] = (line[x] + guess) % 256
    return made


if __name__ == "__main__":
    main()
