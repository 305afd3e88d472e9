"""axe-core in the pages: what it finds in our own parts, and finds at least moderate."""

import os

import pytest

from devstack.axe import MISSING, find_script, is_here
from tests.e2e.chromium import Page
from tests.support.prerequisites import needs

_RUN = """axe.run({ include: ['[data-page]', '[data-form]'].filter(s => document.querySelector(s)).map(s => [s]) },
  { resultTypes: ['violations'] }).then(found => found.violations.filter(v => v.impact !== 'minor')
    .flatMap(v => v.nodes.map(n => `${v.impact} ${v.id}: ${n.html.slice(0, 160)} ${n.failureSummary}`)))"""


def needs_axe() -> pytest.MarkDecorator:
    """The mark of tests that need axe-core."""
    return needs(is_here(os.environ), MISSING)


def violations(page: Page) -> list[str]:
    """The violations of the page as it is now; the script is loaded by the debugger, which the page's policy allows."""
    if not page.script("!!window.axe"):
        page.call("Runtime.evaluate", expression=find_script(os.environ).read_text())
    answer = page.call("Runtime.evaluate", expression=_RUN, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in answer, answer
    found: list[str] = answer["result"]["value"]
    return found
