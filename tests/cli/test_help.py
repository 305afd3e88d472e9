"""Help, usage errors and settings: what a person sees before anything is connected."""

import os
import pty
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from devstack.services import GROUPS
from tests.support.cli import Command
from tests.test_public_api import HEAVY
from tidemark.cli.main import COMMANDS as MODULES
from tidemark.cli.main import EXTENDED, NOUNS, build_app

ESCAPE = "\x1b"
SLOW = ("asyncio", "pydantic", "psutil", "rich.console", "rich.table", "devstack.control", "tidemark.settings")
"""Modules that a command without settings and tables does without."""


def _commands(within: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Every command that help lists, with its examples, read from the docstring."""
    for command in (c for c in within.registered_commands if not c.hidden):
        assert command.callback is not None
        text = command.callback.__doc__ or ""
        examples = [line.strip() for line in text.partition("Examples:")[2].splitlines() if line.strip()]
        name = command.name or command.callback.__name__.replace("_", "-")
        yield (*path, name), examples
    for group in within.registered_groups:
        assert group.typer_instance is not None and group.name is not None
        yield from _commands(group.typer_instance, (*path, group.name))


COMMANDS = dict(_commands(build_app()))


@pytest.fixture(scope="module")
def tidemark(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(tmp_path_factory.mktemp("help"), "127.0.0.1:1", "sc://127.0.0.1:1")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_the_examples_line_by_line(tidemark: Command, path: tuple[str, ...]) -> None:
    assert COMMANDS[path], f"tidemark {' '.join(path)} has no example"
    told = [line.strip() for line in tidemark(*path, "--help").ok().out.splitlines()]
    assert "Examples:" in told
    for example in COMMANDS[path]:
        assert example in told
        assert example.split()[: len(path) + 1] == ["tidemark", *path]


@pytest.mark.parametrize("module", MODULES)
def test_the_commands_of_a_module_are_those_of_the_table(module: str) -> None:
    app = typer.Typer()
    import_module(f"tidemark.cli.{module}").register(app)
    assert {path[0] for path, _ in _commands(app)} == set(MODULES[module])
    assert {group.name for group in app.registered_groups} == NOUNS & set(MODULES[module])
    for word in MODULES[module]:
        alone = {path[0] for path, _ in _commands(build_app([word, "trips"]))}
        assert alone >= set(MODULES[module])
        assert ("up" in alone) == (word in EXTENDED), "commands of other packages, where they may answer"


@pytest.mark.parametrize("width", ["40", "80", "200"])
@pytest.mark.parametrize("words", [[], ["--help"], ["--help", "run"], ["pu"], ["--hepl"], ["stat"]], ids=" ".join)
def test_an_unknown_word_and_help_get_the_same_answer_without_the_modules(words: list[str], width: str) -> None:
    outlined, complete = (
        CliRunner().invoke(app, words, env={"COLUMNS": width, "TERMINAL_WIDTH": width})
        for app in (build_app(words), build_app())
    )
    assert (outlined.exit_code, outlined.output) == (complete.exit_code, complete.output)
    assert _top(build_app(words)) == _top(build_app())


def _top(app: typer.Typer) -> list[str]:
    """The first words that an app takes, in the order of its help."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return list(group.commands)


def test_a_shell_completes_words_of_commands_and_their_options(tidemark: Command) -> None:
    def completed(words: str, number: int) -> list[str]:
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(number), "_TIDEMARK_COMPLETE": "complete_bash"}
        script = "import sys; sys.argv[0] = 'tidemark'; from tidemark.cli import main; main()"
        command = [sys.executable, "-c", script]
        return subprocess.run(
            command, env=tidemark.environment(**asked), capture_output=True, text=True, check=True
        ).stdout.split()

    assert sorted(completed("tidemark sta", 1)) == ["state", "status"]
    assert set(completed("tidemark state ", 2)) == {path[1] for path in COMMANDS if path[0] == "state"}
    assert "--savepoint" in completed("tidemark state show --", 3)


@pytest.mark.parametrize("word", ["up", "down", "status", "logs", "topic"])
def test_a_command_of_another_package_needs_none_of_the_own_ones(word: str) -> None:
    assert {path[0] for path, _ in _commands(build_app([word]))} == {"up", "down", "status", "logs", "topic"}


def test_the_verbs_of_the_contract_exist() -> None:
    wanted = {"run", "compact", "up", "down", "status", "logs", "doctor"}
    wanted |= {f"checkpoint {v}" for v in ("list", "show", "abort")}
    wanted |= {f"savepoint {v}" for v in ("create", "list", "show", "update", "dispose")} | {"stop", "resume"}
    wanted |= {"state show", "state export", "topic load", "sink show"}
    assert wanted <= {" ".join(path) for path in COMMANDS}


@pytest.mark.parametrize(
    ("group", "old", "new"),
    [
        (("state",), ("source", "shop", "tills", "--key", "a"), ("lineage", "shop", "tills", "--key", "a")),
        (("savepoint",), ("note", "shop", "june", "--expires", "1d"), ("update", "shop", "june", "--expires", "1d")),
        (("restore",), ("shop", "--newest-whole"), ("shop", "--latest-valid")),
        (("fork",), ("shop", "bugfix", "--newest-whole"), ("shop", "bugfix", "--latest-valid")),
    ],
    ids=lambda words: " ".join(words),
)
def test_an_old_spelling_does_the_same_and_help_does_not_list_it(
    tidemark: Command, group: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]
) -> None:
    answers = [tidemark(*group, *spelled) for spelled in (old, new)]
    assert answers[0] == answers[1].failed(3, "shop")
    listed = {line.split()[0] for line in tidemark(*group, "--help").ok().out.splitlines() if line.strip()}
    (shown,), (hidden,) = set(new) - set(old), set(old) - set(new)
    assert shown in listed and hidden not in listed


def test_the_version_is_that_of_the_project_and_needs_nothing_heavy(tidemark: Command) -> None:
    wanted = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
    told = tidemark.process("--version", PYTHONPROFILEIMPORTTIME="1").ok()
    assert told.out == f"tidemark {wanted}\n"
    imported = _imported(told.err)
    assert {"tidemark.cli.main", "typer"} <= imported, "what the modules of the commands import is listed"
    assert not imported & {*HEAVY, *SLOW}


def _imported(told: str) -> set[str]:
    """The modules that Python lists when PYTHONPROFILEIMPORTTIME is set."""
    return {line.rpartition("|")[2].strip() for line in told.splitlines() if line.startswith("import time:")}


def test_help_imports_no_command_no_setting_and_nothing_heavy(tidemark: Command) -> None:
    imported = _imported(tidemark.process("--help", PYTHONPROFILEIMPORTTIME="1").ok().err)
    assert {"tidemark.cli.main", "typer", "devstack.demo.topic"} <= imported
    ours = {name for name in imported if name.startswith("tidemark.")}
    allowed = {"cli", "cli.main", "cli.extensions", "cli.help_texts", "cli.output"}
    allowed |= {"errors", "extras", "redaction", "telemetry", "telemetry.lazy_logger"}
    assert ours <= {f"tidemark.{name}" for name in allowed}
    assert not imported & {*HEAVY, *SLOW}


@pytest.mark.parametrize("command", ["up", "down"])
def test_the_help_of_the_stack_names_every_group_of_services(command: str, tidemark: Command) -> None:
    """The module of the services is not imported for a help text, which therefore repeats their names."""
    told = " ".join(tidemark(command, "--help").ok().out.split())
    assert f"some of {', '.join(GROUPS)}, separated by commas" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("walk",),
        ("run",),
        ("run", "flights", "--max-records", "0"),
        ("run", "flights", "--max-records", "many"),
        ("run", "flights", "--no-such-option"),
        ("checkpoint", "list", "flights", "--limit", "0"),
        ("topic", "load", "trains"),
        ("state", "export", "flights", "aircraft"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_exits_2(tidemark: Command, arguments: tuple[str, ...]) -> None:
    answer = tidemark(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert "Usage:" in answer.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("run", "flights", "--until", "tomorrow"), "not a time"),
        (("checkpoint", "show", "flights", "newest"), "not a checkpoint id"),
        (("state", "export", "flights", "aircraft", "--to", "x.xlsx"), ".parquet or .csv"),
        (("run", "../flights"), "../flights"),
        (("run", "a`b"), "a`b"),
        (("checkpoint", "list", "a/../../etc"), "a/../../etc"),
        (("state", "show", "..", "aircraft"), ".."),
        (("run", "x" * 64), "x" * 64),
        (("run", ""), "''"),
        (("run", "fl\u0456ghts"), "fl\u0456ghts"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, tuple) else None,
)
def test_what_does_not_fit_exits_2_with_three_lines(tidemark: Command, arguments: tuple[str, ...], word: str) -> None:
    tidemark(*arguments).failed(2, word)
    assert not tidemark.warehouse.exists()


def test_an_unknown_pipeline_exits_3_and_says_which_there_are(tidemark: Command) -> None:
    for verb in (("run",), ("checkpoint", "list"), ("checkpoint", "abort"), ("compact",)):
        tidemark(*verb, "flihgts").failed(3, "flihgts", "none")
    assert not tidemark.warehouse.exists()


def test_an_unknown_setting_is_refused_by_name_and_its_value_is_not_shown(tidemark: Command) -> None:
    answer = tidemark("checkpoint", "list", "flights", TIDEMARK_WAREHOSE="s3cret-place")
    answer.failed(2, "TIDEMARK_WAREHOSE", "TIDEMARK_WAREHOUSE")
    assert "s3cret" not in answer.err


def test_a_setting_that_does_not_fit_is_named_and_its_value_is_not_shown(tidemark: Command) -> None:
    answer = tidemark("checkpoint", "list", "flights", TIDEMARK_SPARK="http://user:s3cret@spark")
    answer.failed(2, "TIDEMARK_SPARK", "sc://")
    assert "s3cret" not in answer.err


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}], ids=["pipe", "NO_COLOR"])
def test_a_pipe_gets_plain_text(tidemark: Command, variables: dict[str, str]) -> None:
    for arguments in (("--help",), ("run", "--help"), ("run",), ("run", "nobody"), ("doctor",)):
        answer = tidemark(*arguments, FORCE_COLOR="", **variables)
        assert ESCAPE not in answer.out + answer.err


def test_a_terminal_with_no_color_gets_no_colours(tidemark: Command) -> None:
    mine, its = pty.openpty()
    command = [sys.executable, "-m", "tidemark.cli.main", "status"]
    environment = tidemark.environment(NO_COLOR="1", TERM="xterm-256color")
    with subprocess.Popen(command, env=environment, stdout=its, stderr=its) as running:
        os.close(its)
        told = b"".join(iter(lambda: _read(mine), b""))
    assert running.returncode == 0
    assert b"\x1b[3" not in told
    assert b"state" in told


def test_an_interruption_exits_130_and_says_what_is_safe(tidemark: Command) -> None:
    waiting = "import time\nprint('waiting', flush=True)\ntime.sleep(60)\n"
    for number in (signal.SIGINT, signal.SIGTERM):
        tidemark.declare(waiting, file="waits.py")
        running = tidemark.started("run", "flights")
        assert running.stdout is not None
        assert running.stdout.readline() == "waiting\n"
        os.kill(running.pid, number)
        out, err = running.communicate(timeout=30)
        assert (running.returncode, out) == (130, "")
        assert err.splitlines()[-3:] == [
            "interrupted",
            "Safe: every completed checkpoint is intact.",
            "Next: run the command again.",
        ]
    (tidemark.pipelines / "waits.py").unlink()


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 4096)
    except OSError:  # the other end of a terminal was closed
        return b""
