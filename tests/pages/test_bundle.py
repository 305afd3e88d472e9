"""The bundle of the pages, as text: short files, nothing from elsewhere, and names reach the page as text only."""

import re
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

FILES = sorted((ROOT / "include/tidemark/airflow/ui/static").glob("*.js"))
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|dangerouslySet|srcdoc|\beval\("
    r"|new Function|setTimeout\(\s*[\"'`]|javascript:|\bhref:|\bsrc:"
)
"""What turns a name into markup or code."""
ELSEWHERE = re.compile(r"https?://|[\"'`]//|\bimport\(|WebSocket|sendBeacon")
IMPORT = re.compile(r"from \"([^\"]+)\"")


def findings(text: str, folder: Path) -> list[str]:
    """What a file of the bundle must not hold."""
    found = [f"dangerous: {m.group()}" for m in DANGEROUS.finditer(text)]
    found += [f"from elsewhere: {m.group()}" for m in ELSEWHERE.finditer(text)]
    found += [f"no file: {name}" for name in IMPORT.findall(text) if not (folder / name).is_file()]
    lines = text.splitlines()
    found += [f"line {n} is too long" for n, line in enumerate(lines, 1) if len(line) > 120]
    return found + ([f"{len(lines)} lines"] if len(lines) > 300 else [])


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_a_file_of_the_bundle_is_short_and_asks_nobody_else(file: Path) -> None:
    assert findings(file.read_text(), file.parent) == []


@pytest.mark.parametrize(
    "text",
    [
        "box.innerHTML = name;", 'h("a", { href: name }, "go")', 'import x from "./gone.js";', "eval(name)",
        'fetch("https://cdn.example/chart.js")', "x".ljust(121, "x"), "x\n" * 301,
    ],
)  # fmt: skip
def test_what_is_forbidden_is_found(text: str) -> None:
    assert findings(text, FILES[0].parent)


def test_the_plugin_names_files_that_are_there() -> None:
    told = (ROOT / "include/tidemark/airflow/ui/plugin.py").read_text()
    named = re.findall(r"tidemark/static/([\w.]+)", told)
    assert len(named) == 2 and {f.name for f in FILES} >= set(named)
