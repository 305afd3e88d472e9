"""The how-to about formats, typed as it is: a format of an author's own, without Spark."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidemark import formats
from tidemark.formats.known_formats import FORMATS

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/read-other-formats.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_format_of_the_page_decodes_and_refuses(capsys: Any) -> None:
    declared, tried = (block for block in BLOCKS[-2:] if "import" in block)
    names: dict[str, Any] = {"__name__": "page"}
    exec(declared, names)  # noqa: S102  (it is what the page says)
    exec(tried, names)  # noqa: S102
    assert "requests=1, worst=500" in capsys.readouterr().out
    found = names["found"]
    assert [letter["reason"] for letter in found.dead_letters("paths")] == ["no_status"]
    (plan,) = (checkpoint.plan for checkpoint in found.checkpoints)
    assert plan.formats == {"records": {"format": "log_line"}}


def test_kafkas_own_fields_of_the_page_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("page")  # annotations of a dataclass are looked up in its module
    monkeypatch.setitem(sys.modules, "page", module)
    blocks = [block for block in BLOCKS[:-2] if "import" in block]
    assert len(blocks) == 2 and "kafka.header" in blocks[0] and "assert" in blocks[1]
    for block in blocks:
        exec(block, vars(module))  # noqa: S102  (it is what the page says)


def test_the_page_lists_every_format() -> None:
    listed = set(re.findall(r"^\| `(\w+)\(", PAGE.read_text(), re.MULTILINE))
    assert listed == {cls.__name__ for cls in FORMATS.values()} == set(formats.__all__) - {"BadRecord", "RecordFormat"}
