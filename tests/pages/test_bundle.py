"""The bundle of the pages, as text: short files, nothing from elsewhere, and names reach the page as text only."""

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.test_architecture import ROOT
from tidemark.airflow.ui.bundle import version_of

STATIC = ROOT / "include/tidemark/airflow/ui/static"
FILES = sorted(STATIC.glob("*.js"))
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
    named = re.findall(r"tidemark/static/(?:\{VERSION\}/)?([\w.-]+)", told)
    assert len(set(named)) == 5 and {f.name for f in STATIC.iterdir()} >= set(named)


def test_the_version_changes_with_any_file_of_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1")
    seen = [version_of(tmp_path)]
    for change in (
        lambda: os.utime(tmp_path / "a.js", ns=(0, 10**18)),
        lambda: (tmp_path / "b.js").write_text(""),
        lambda: (tmp_path / "b.js").rename(tmp_path / "c.js"),
        lambda: (tmp_path / "c.js").unlink(),
    ):
        change()
        seen.append(version_of(tmp_path))
    assert seen[-1] == seen[1] and len(set(seen)) == 4 and re.fullmatch("[0-9a-f]{12}", seen[0])


@pytest.mark.parametrize("file", sorted(STATIC.glob("*.svg")), ids=lambda f: f.name)
def test_an_icon_is_a_small_drawing_and_nothing_else(file: Path) -> None:
    root = ElementTree.fromstring(file.read_text())  # noqa: S314  (our own)
    found = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()}
    assert found == {"svg", "path"} and file.stat().st_size < 1000
    names = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in names if name.startswith("on") or name in ("style", "href")}
