"""The examples of the how-to do what the page says."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/keep-state-with-process.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "block", BLOCKS, ids=lambda block: re.findall(r"^class (\w+)", block, re.MULTILINE)[-1:] or "read"
)
def test_an_example_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "example_of_process.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("example_of_process")
    monkeypatch.delitem(__import__("sys").modules, "example_of_process")


def test_every_kind_of_state_has_an_example_with_a_check() -> None:
    checked = [block for block in BLOCKS if "assert " in block]
    for kind in ("value", "list", "map"):
        assert any(f"= state.{kind}(" in block for block in checked)
