"""The examples in the docstrings of the author's API run and print what they say."""

import doctest
from importlib import import_module

import pytest

MODULES = (
    "declare.keyed_state",
    "declare.operator_state",
    "declare.operators",
    "declare.pipeline",
    "declare.retention",
    "declare.sources",
    "errors",
    "formats.json",
    "formats.text",
    "sinks.console",
    "sinks.delta",
    "sinks.kafka",
    "sinks.sink",
    "testing",
    "testing.harness",
    "testing.twin.memory",
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_say(name: str) -> None:
    result = doctest.testmod(import_module(f"tidemark.{name}"))

    assert result.attempted > 0
    assert result.failed == 0
