"""The Python of a how-to runs as it stands: block after block in one namespace, with the asserts that it shows."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["filter-and-reshape", "several-sources-and-broadcast"])
def test_the_examples_of_a_page_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall((ROOT / f"docs/how-to/{page}.md").read_text())
    assert blocks
    # Annotations of a dataclass are looked up in its module.
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for block in blocks:
        exec(compile(block, f"{page}.md", "exec"), vars(module))  # noqa: S102
