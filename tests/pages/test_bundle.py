"""The bundle of the pages, as text: short files, nothing from elsewhere, and names reach the page as text only."""

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.test_architecture import ROOT
from tidemark.airflow.ui.bundle import ENTRIES, join_modules, version_of

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


def written(folder: Path, **files: str) -> Path:
    """Files of a bundle. Returns the first."""
    for name, text in files.items():
        (folder / f"{name}.js").write_text(text)
    return folder / f"{next(iter(files))}.js"


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_has_each_file_that_it_needs_once_and_behind_those_that_it_imports(entry: str) -> None:
    joined = join_modules(STATIC / entry)
    order = re.findall(r"^\$\.(\w+) = \(\(\) => \{$", joined, re.MULTILINE)
    needed = {Path(entry).stem}
    while (
        more := {name[2:-3] for stem in needed for name in IMPORT.findall((STATIC / f"{stem}.js").read_text())} - needed
    ):
        needed |= more
    assert sorted(order) == sorted(needed) and order[-1] == Path(entry).stem
    for n, stem in enumerate(order):
        assert {name[2:-3] for name in IMPORT.findall((STATIC / f"{stem}.js").read_text())} <= set(order[:n])
    assert not re.search(r"^(import|export)\b", joined, re.MULTILINE)


def test_every_file_of_the_bundle_is_reached_from_an_entry() -> None:
    reached = {name for entry in ENTRIES for name in re.findall(r"^\$\.(\w+) = ", join_modules(STATIC / entry), re.M)}
    assert {file.stem for file in FILES} == reached


JOINED = {
    "entry": 'import { base } from "./base.js";\nimport { one, two,\n  later, seven } from "./more.js";\n\n'
    "globalThis.seen.push(base, one, two, later(), seven);\n",
    "more": 'import { base } from "./base.js";\nexport { seven } from "./base.js";\n'
    "export const { one, two } = { one: base + 1, two: 2 };\nexport function later() { return helper(); }\n"
    'const helper = () => "  import";\nglobalThis.seen.push("more");\nexport async function wait() { return 9; }\n',
    "base": 'const base = 6;\nexport const seven = 8;\nglobalThis.seen.push("base");\nexport { base };\n',
}


def test_a_file_becomes_a_function_that_returns_what_it_exports(tmp_path: Path) -> None:
    assert (
        join_modules(written(tmp_path, **JOINED))
        == """\
const $ = {};
$.base = (() => {
const base = 6;
const seven = 8;
globalThis.seen.push("base");


return { seven: seven, base: base };
})();

$.more = (() => {
const { base } = $.base;

const { one, two } = { one: base + 1, two: 2 };
function later() { return helper(); }
const helper = () => "  import";
globalThis.seen.push("more");
async function wait() { return 9; }

return { one: one, two: two, later: later, wait: wait, seven: $.base.seven };
})();

$.entry = (() => {
const { base } = $.base;
const { one, two, later, seven } = $.more;

globalThis.seen.push(base, one, two, later(), seven);

return {  };
})();
"""
    )


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"a": 'import { x } from "./b.js";\n', "b": "const x = 1;\n"},
            "a.js imports ['x'], which b.js does not export",
        ),
        ({"a": 'export { x } from "./b.js";\n', "b": ""}, "a.js imports ['x'], which b.js does not export"),
        ({"a": 'import { b } from "./b.js";\n', "b": 'import { a } from "./a.js";\n'}, "a → b → a: these files"),
        (
            {"a": 'import { x as y } from "./b.js";\n', "b": "export const x = 1;\n"},
            "{ x as y }: the bundle renames no",
        ),
        ({"a": 'import x from "./b.js";\n'}, 'a.js: import x from "./b.js";: not a form'),
        ({"a": 'import "./b.js";\n'}, 'a.js: import "./b.js";: not a form'),
        ({"a": "export let x = 1;\n"}, "a.js: export let x = 1;: not a form"),
        ({"a": "export default 1;\n"}, "a.js: export default 1;: not a form"),
        ({"a": "export const [x] = [1];\n"}, "a.js: export const [x] = [1];: not a form"),
    ],
)
def test_what_cannot_be_joined_is_refused(files: dict[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        join_modules(written(tmp_path, **files))
