"""Checks the documentation against the code: commands, options, tables, examples, links, words."""

import ast
import functools
import inspect
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer._click import Command
from typer.core import TyperGroup

import tidemark
from tests.unit import test_how_to_examples
from tidemark.cli.main import build_app
from tidemark.declare.pipeline import Pipeline
from tidemark.environment import declared_in
from tidemark.errors import EXIT_CODES
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.metrics import METRICS
from tidemark.reading import RestorePointChoice
from tidemark.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [p for p in PAGES if p.parent.name != "adr" and p.name != "CHANGELOG.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_FOR_USERS = {"crash_at"}
"""Settings that only the fault tests use."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _each(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=_name)


def _blocks(page: Path, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(page.read_text()) if language in languages]


def _rows(page: str, first_heading: str) -> list[list[str]]:
    """The cells, without backticks, of the table whose first column has this heading."""
    lines = (ROOT / page).read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    rows = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")])
    return rows


def _command_lines(page: Path) -> list[str]:
    """Commands in shell blocks and inline code, without prompts, comments and variables."""
    shell = [line for block in _blocks(page, "bash", "console", "shell") for line in block.splitlines()]
    inline = re.findall(r"`((?:tidemark|make) [^`]+)`", FENCE.sub("", page.read_text()))
    lines = [re.sub(r"^\$ |\s+#.*$", "", line).strip() for line in [*shell, *inline]]
    return [re.sub(r"^(\w+=\S*\s+)+", "", line) for line in lines if line]


def _tree() -> Command:
    return typer.main.get_command(build_app())


def _complaints(words: list[str], command: Command) -> Iterator[str]:
    """The commands and options of a line that the command line does not have."""
    words = words[1:]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        found = command.commands.get(words[0])
        if found is None:
            yield f"no command {words[0]!r} below {command.name}"
            return
        command, words = found, words[1:]
    options = {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")} | {"--help"}
    used = [word.split("=")[0] for word in words if re.match(r"-{1,2}[a-zA-Z]", word)]
    yield from (f"{command.name} has no option {option}" for option in used if option not in options)


@_each(GUIDES)
def test_commands_and_options_exist(page: Path) -> None:
    tree = _tree()
    lines = [line for line in _command_lines(page) if line.startswith("tidemark ")]
    wrong = [f"{line}: {c}" for line in lines for c in _complaints(shlex.split(line), tree)]
    assert not wrong, "correct the page or the command line:\n" + "\n".join(wrong)


@_each(GUIDES)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [line for line in _command_lines(page) if line.startswith("make ")]
    wanted = {word for line in lines for word in line.split()[1:] if "=" not in word}
    assert wanted <= targets, f"no such target: {sorted(wanted - targets)}"


def _commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path)
        return
    for name, found in below.items():
        if not found.hidden:  # hidden commands are old spellings
            yield from _commands(found, (*path, name))


def _below(command: Command, word: str) -> Command:
    assert isinstance(command, TyperGroup)
    return command.commands[word]


def test_every_command_is_shown_in_a_how_to() -> None:
    shown = [line for page in (ROOT / "docs/how-to").glob("*.md") for line in _command_lines(page)]
    missing = [c for c in _commands(_tree()) if not any(f"{line} ".startswith(f"tidemark {c} ") for line in shown)]
    assert not missing, f"write or extend a page of docs/how-to for {missing}"


def test_the_complaint_about_a_command_names_it() -> None:
    tree = _tree()
    assert list(_complaints(shlex.split("tidemark rum flights"), tree)) == [f"no command 'rum' below {tree.name}"]
    assert list(_complaints(shlex.split("tidemark run flights --mx 3"), tree)) == ["run has no option --mx"]
    assert list(_complaints(shlex.split("tidemark run flights --max-records=3 --json"), tree)) == []


def _next_steps() -> list[tuple[str, str]]:
    """The `next` texts of errors with their location; `X` replaces each interpolated value."""
    found = []
    for path in sorted((ROOT / "include/tidemark").rglob("*.py")):
        for call in (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)):
            for told in (k.value for k in call.keywords if k.arg == "next"):
                parts = told.values if isinstance(told, ast.JoinedStr) else [told]
                text = "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in parts)
                found.append((f"{_name(path)}:{told.lineno}", text))
    return found


def test_what_errors_tell_to_type_exists() -> None:
    tree = _tree()
    leaves = [functools.reduce(_below, path.split(), tree) for path in _commands(tree)]
    options = {option for leaf in leaves for p in leaf.params for option in p.opts}
    known = {path.split()[0] for path in _commands(tree)}
    wrong = []
    for place, text in _next_steps():
        typed = re.findall(r"(?:^|[ ;(`])tidemark ([a-z-]+)", text)
        wrong += [f"{place}: tidemark {verb}" for verb in typed if verb not in known]
        wrong += [f"{place}: {option}" for option in re.findall(r"(?<!\S)--[a-z-]+", text) if option not in options]
    assert not wrong, "errors name commands or options that do not exist:\n" + "\n".join(wrong)


def test_the_table_of_exit_codes_is_the_one_in_the_code() -> None:
    assert {int(code): meaning for code, meaning in _rows("docs/errors.md", "code")} == EXIT_CODES


def test_the_table_of_reasons_is_the_one_in_the_code() -> None:
    told = {row[0]: (row[2], row[3]) for row in _rows("docs/errors.md", "reason")}
    yes = {True: "yes", False: "no"}
    assert told == {r.value: (yes[r.counts], yes[r.aborts]) for r in FailureReason}


def test_the_table_of_dead_letters_is_the_one_in_the_code() -> None:
    assert [row[0] for row in _rows("docs/how-to/dead-letters.md", "reason")] == [r.value for r in Reason]


def test_the_table_of_settings_is_the_one_in_the_code() -> None:
    told = {n for row in _rows("docs/how-to/set-up-and-demo.md", "variable") for n in row[0].split(", ")}
    assert told == {PREFIX + name.upper() for name in set(Settings.model_fields) - NOT_FOR_USERS}


def test_the_table_of_metrics_is_the_one_in_the_code() -> None:
    told = [tuple(row) for row in _rows("docs/how-to/monitor.md", "metric")]
    wanted = [(name, m.unit, m.meaning, m.flink or "ours") for name, m in METRICS.items()]
    assert told == [tuple(cell.replace("`", "") for cell in row) for row in wanted]


def test_every_kind_of_state_is_explained() -> None:
    page = "docs/how-to/write-a-pipeline.md"
    told = " ".join(row[0] for heading in ("kind", "kind of a Process") for row in _rows(page, heading))
    kinds = [n for n in dir(tidemark.state) if n.islower()]
    assert [k for k in kinds if f"{k}(" not in told] == []


def test_the_glossary_has_every_name_that_authors_import() -> None:
    rows = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("|")]
    told = {word for line in rows for word in re.findall(r"`(\w+)`", line)}
    missing = sorted({*tidemark.__all__, *tidemark.targets.__all__} - told)
    assert not missing, f"a new name changes docs/glossary.md in the same commit: {', '.join(missing)}"


def test_the_guides_name_the_command_that_the_checks_run() -> None:
    called = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("make ")]
    assert len(called) == 1
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"`{called[0]}`" in (ROOT / page).read_text(), f"{page} does not name `{called[0]}`"


EXAMPLES = [(page, block) for page in GUIDES for block in _blocks(page, "python")]


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=[_name(page) for page, _ in EXAMPLES])
def test_python_examples_compile_and_pipelines_in_them_are_pipelines(page: Path, block: str, tmp_path: Path) -> None:
    compile(block, _name(page), "exec")
    if (
        "Pipeline(" in block and page.stem not in test_how_to_examples.PAGES
    ):  # the examples of those build on each other, and are run
        path = tmp_path / "example.py"
        path.write_text(block)
        assert all(isinstance(found, Pipeline) for found in declared_in(path))
        assert declared_in(path)


def _keywords_of(function: str) -> set[str]:
    """The keyword arguments of a documented function; options of DAGs are parsed, which avoids importing Airflow."""
    if function == "read_state":
        return {*inspect.signature(tidemark.read_state).parameters, *RestorePointChoice.__annotations__}
    parts = [
        ast.parse((ROOT / f"include/tidemark/airflow/{n}.py").read_text()) for n in ("checkpoint_dags", "dag_options")
    ]
    options = [n for part in parts for n in part.body if isinstance(n, ast.ClassDef) and n.name.endswith("Options")]
    fields = [n.target for one in options for n in one.body if isinstance(n, ast.AnnAssign)]
    return {field.id for field in fields if isinstance(field, ast.Name)}


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=[_name(page) for page, _ in EXAMPLES])
def test_examples_use_arguments_that_exist(page: Path, block: str) -> None:
    calls = [n for n in ast.walk(ast.parse(block)) if isinstance(n, ast.Call)]
    for call in calls:
        name = ast.unparse(call.func).removeprefix("tidemark.")
        if name in ("checkpoint_dag", "read_state"):
            unknown = {k.arg for k in call.keywords if k.arg} - _keywords_of(name)
            assert not unknown, f"{_name(page)}: {name} has no argument {sorted(unknown)}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-")


@_each(PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if anchor and file.is_file() else []
        if not file.exists() or (anchor and anchor not in map(_anchor, headings)):
            broken.append(target)
    assert not broken


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


REGISTRIES = ["pypi.%s", "pythonhosted.%s", "maven.%s", "maven.apache.%s", "npmjs.%s", "anaconda.%s", "golang.%s"]
FORBIDDEN = {
    "a path of one machine": re.compile(rf"(?<![\w}}./-])/({'|'.join(['work', 'home', 'root', 'Users'])})/\w"),
    "the host of a package registry": re.compile("|".join(re.escape(r % "org") for r in REGISTRIES) + r"|crates\.io"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_holds(what: str) -> None:
    found = []
    for name in _tracked():
        text = (ROOT / name).read_bytes().decode(errors="replace")
        lines = enumerate(text.splitlines(), start=1)
        found += [f"{name}:{n}: {line.strip()[:100]}" for n, line in lines if FORBIDDEN[what].search(line)]
    own = [line for line in found if not line.startswith("tests/test_docs.py:")]
    assert not own, f"{what}:\n" + "\n".join(own)
