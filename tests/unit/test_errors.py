"""Errors: one root, an exit code each, three lines each, and a life across processes."""

import inspect
import pickle

import pytest

from tidemark import errors
from tidemark.errors import EXIT_CODES, GateFailedError, TidemarkError

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, TidemarkError)]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_a_message_says_what_happened_what_is_safe_and_what_to_type(cls: type[TidemarkError]) -> None:
    lines = str(cls("the disk is full", safe="chk-4 is intact.", next="free some space.")).splitlines()
    assert lines == ["the disk is full", "Safe: chk-4 is intact.", "Next: free some space."]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_the_exit_code_is_a_documented_failure(cls: type[TidemarkError]) -> None:
    assert cls.code in EXIT_CODES
    assert cls.code not in (0, 130)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_the_tree_in_the_module_docstring_names_every_class(cls: type[TidemarkError]) -> None:
    assert cls.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_an_error_survives_the_way_between_processes(cls: type[TidemarkError]) -> None:
    original = cls("what", safe="safe.", next="next.")
    copy = pickle.loads(pickle.dumps(original))  # noqa: S301
    assert (type(copy), str(copy), copy.code) == (cls, str(original), original.code)


def test_a_verdict_survives_the_way_between_processes() -> None:
    original = GateFailedError("gate failed", next="look.").with_verdict("the verdict")
    assert pickle.loads(pickle.dumps(original)).verdict == "the verdict"  # noqa: S301


def test_a_next_step_cannot_be_left_out() -> None:
    with pytest.raises(TypeError, match="next"):
        TidemarkError("what")  # type: ignore[call-arg]


def test_nothing_was_written_unless_the_raiser_knows_better() -> None:
    assert TidemarkError("what", next="next.").safe == "nothing was written."
