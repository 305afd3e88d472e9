"""How soon a page shows something usable at many checkpoints: `python -m benchmarks.first_answers [COUNT]`.

A long history (`long_history`) is on a local disk, and in a bucket of MinIO behind a proxy in which each request waits
50 ms. For each view an API server is started, which has read nothing of it; then Chromium opens the view in a new page,
and again after the first. The page itself says when it has the answer: milliseconds since the navigation, and since
Airflow asked for our bundle. It needs `make setup-minio` and Chromium. With the default count it writes
docs/benchmarks/first-answers.json.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.bucket_pages import COUNT, SEED, WAIT_MS, send, write_history
from benchmarks.facts import made_by
from benchmarks.object_store import waits
from benchmarks.report import FOLDER
from tests.e2e.airflow_pages import prepare, running_server
from tests.e2e.chromium import Page, chromium
from tests.support.s3 import MINIO, S3Server, S3Servers

ROUNDS = 2
"""Pages that are opened after the first one of a server."""
PAGE = "/plugin/checkpoints#pipeline=trips&view="
HAS = "!!document.querySelector('{}')"
VIEWS: dict[str, tuple[str, str]] = {
    "home: the verdict": ("/", HAS.format("[data-pipeline=trips] [data-verdict]")),
    "overview: the verdict": (f"{PAGE}overview", HAS.format("[data-verdict-line]")),
    "overview: the charts": (f"{PAGE}overview", HAS.format("[data-chart=Records] path")),
    "history: 25 lines": (f"{PAGE}history", "document.querySelectorAll('th button[data-key]').length === 25"),
    "the newest checkpoint": (f"{PAGE}checkpoint&checkpoint={{newest}}", HAS.format("[data-node=manifest]")),
    "an old checkpoint": (f"{PAGE}checkpoint&checkpoint=17", HAS.format("[data-node=manifest]")),
    "compare: the newest with the one before": (f"{PAGE}compare", HAS.format("[data-summary]")),
    "timelines: 100 dots": (f"{PAGE}timelines", "document.querySelectorAll('[data-dot]').length === 100"),
    "retention: the rule": (f"{PAGE}retention", HAS.format("[data-calendar]")),
    "row to source: the form": (f"{PAGE}origin", HAS.format("input[aria-label=bus]")),
    "columns": (f"{PAGE}columns", HAS.format("[data-column]")),
    "configuration": (f"{PAGE}configuration", "document.body.innerText.includes('State backend')"),
}
"""The address of each view, and the condition under which it has an answer."""
WATCH = """(() => {
  const asked = sessionStorage.getItem('asked');
  if (!asked || location.pathname.startsWith('/api/')) return;
  const look = () => {
    let found = false;
    try { found = Function(`return ${asked}`)(); } catch { /* the page has no body yet */ }
    if (found) window.answered = performance.now(); else setTimeout(look, 5);
  };
  look();
})()"""
STARTED = """Math.min(...performance.getEntriesByType('resource')
  .filter(e => /\\/(page|home)\\.js/.test(e.name)).map(e => e.startTime))"""


def main() -> int:
    """Measures, prints the figures as JSON, and writes them."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory(prefix="tidemark-first-") as folder, S3Servers(Path(folder, "stores")) as servers:
        root = Path(folder)
        newest = write_history(root / "warehouse", count)
        server = servers.server(MINIO)
        send(server, root / "warehouse")
        server.proxy.rule = waits(WAIT_MS / 1000)
        places = {
            "disk": {"warehouse": str(root / "warehouse")},
            f"bucket, {WAIT_MS} ms": {
                "warehouse": "s3://first/house",
                "s3_endpoint": server.proxy.address,
            },
        }
        found: dict[str, Any] = {}
        with mock.patch.dict(os.environ, server.variables):
            for place, settings in places.items():
                if wanted in place:
                    home = root / place.partition(",")[0]
                    home.mkdir()
                    found[place] = measure(home, settings, newest, server)
    facts = {**made_by("PYTHONPATH=include:. python -m benchmarks.first_answers", SEED), "checkpoints": count}
    report = json.dumps({**facts, "places": found}, indent=1) + "\n"
    sys.stdout.write(report)
    if count == COUNT and not wanted:
        (FOLDER / "first-answers.json").write_text(report)
    return 0


def measure(home: Path, settings: dict[str, str], newest: int, server: S3Server) -> dict[str, Any]:
    """Milliseconds to the first answer per view: of a server that was just started, and the median of further ones."""
    env = prepare(home, **settings)
    found = {}
    for name, (address, condition) in VIEWS.items():
        with opened(home, env) as page:
            rounds = []
            for _ in range(ROUNDS + 1):
                server.proxy.requests.clear()
                answered, started = look(page, address.format(newest=newest), condition)
                rounds.append((round(answered), round(answered - started), len(server.proxy.requests)))
            first, later = rounds[0], rounds[1:]
            found[name] = {
                "first_ms": first[0],
                "first_own_ms": first[1],
                "first_requests": first[2],
                "later_ms": round(statistics.median(answered for answered, *_ in later)),
                "later_own_ms": round(statistics.median(own for _, own, _ in later)),
            }
            sys.stderr.write(f"{name}: {json.dumps(found[name])}\n")
    return found


@contextmanager
def opened(home: Path, env: dict[str, str]) -> Iterator[Page]:
    """A new server, and a browser that has shown a page of Airflow's own."""
    with running_server(home, env) as server, chromium(server.base, server.token(), size=(1440, 900)) as page:
        page.call("Page.enable")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        page.call("Page.navigate", url=f"{server.base}/dags")
        page.sees("trips")
        yield page


def look(page: Page, address: str, condition: str) -> tuple[float, float]:
    """Opens an address. Returns when it had an answer, and when Airflow asked for the bundle, after the navigation."""
    page.script(f"sessionStorage.setItem('asked', {json.dumps(condition)})")
    page.call("Page.navigate", url=page.base + "/api/v2/version")
    page.call("Page.navigate", url=page.base + address)
    deadline = time.monotonic() + 300
    while not (answered := page.script("window.answered")):
        assert time.monotonic() < deadline, f"{address}\n{page.script('document.body.innerText')}"
        time.sleep(0.05)
    started = page.script(STARTED)
    assert started, "the page has loaded none of the files of Tidemark"
    return float(answered), float(started)


if __name__ == "__main__":
    sys.exit(main())
