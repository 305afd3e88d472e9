"""A stranger who finds everything by role and name, as the browser's accessibility tree has them, and counts clicks."""

import json
import time
from dataclasses import dataclass
from typing import Any

from tests.e2e.chromium import PATIENCE, Page

TABS = 150
"""Presses of the Tab key after which something counts as out of reach."""
LOOK, STEADY = 0.05, 8
"""A hand takes almost half a second from the eye to the button: so many looks, so many seconds apart."""
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowRight": 39}
_TEXTS = {"Enter": "\r"}
_COVER = """function(x, y) { const hit = document.elementFromPoint(x, y);
  return !hit ? 'nothing' : this === hit || this.contains(hit) ? '' : hit.outerHTML.slice(0, 300); }"""
_FOCUS = """(() => {
  const e = document.activeElement, r = e.getBoundingClientRect(), s = getComputedStyle(e);
  const [x, y] = [Math.min(r.right, innerWidth) + Math.max(r.left, 0), Math.min(r.bottom, innerHeight)
    + Math.max(r.top, 0)].map(v => v / 2);
  const hit = document.elementFromPoint(x, y);
  return { ring: e.matches(':focus-visible') && (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0
      || s.boxShadow !== 'none'),
    seen: r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth && !!hit
      && (e === hit || e.contains(hit) || hit.contains(e)) };
})()"""
_STILL = """document.getAnimations().every(a => a.playState !== 'running' || !a.effect.target
  || !a.effect.target.closest('[data-page], [data-form]')) && !document.querySelector('.chakra-spinner')"""


@dataclass(frozen=True, slots=True)
class Press:
    """A step: press what has this role and name, anywhere or inside what a selector finds."""

    role: str
    name: str
    inside: str = ""


@dataclass(frozen=True, slots=True)
class Type:
    """A step: go into a field, type a text, and press Enter."""

    role: str
    name: str
    text: str


Step = Press | Type


class Walker:
    """Walks with the mouse or the keyboard.

    Args:
        page: the page.
        by_keyboard: use Tab, arrows, Enter and Escape only.

    Attributes:
        clicks: how many clicks it has made, or would have made with a mouse.
    """

    def __init__(self, page: Page, *, by_keyboard: bool = False) -> None:
        self.page, self.by_keyboard, self.clicks = page, by_keyboard, 0

    def go(self, step: Step) -> None:
        """Takes a step. A text field costs a click, too; typing does not."""
        self.clicks += 1
        inside = step.inside if isinstance(step, Press) else ""
        if self.by_keyboard:
            self._reach(step.role, step.name)
            if isinstance(step, Press) and step.role != "tab":  # a tab opens as soon as it has the focus
                self.key("Enter")
        else:
            self._click(step.role, step.name, inside)
        if isinstance(step, Type):
            self.page.call("Input.insertText", text=step.text)
            self.key("Enter")

    def key(self, name: str) -> None:
        """Presses a key."""
        code, text = _CODES[name], _TEXTS.get(name)
        for kind, typed in (("keyDown", {"text": text} if text else {}), ("keyUp", {})):
            self.page.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **typed
            )

    def still(self) -> None:
        """Waits until nothing is read or moves any more."""
        self._until(lambda: self.page.script(_STILL), "the page to stand still")

    def sees(self, text: str) -> None:
        """Waits for a text that can be seen, if need be by scrolling."""
        wanted = f"document.body.innerText.replace(/\\u00a0/g, ' ').includes({json.dumps(text)})"
        self._until(lambda: self.page.script(wanted), f"{text!r}")

    def focused(self) -> tuple[str, str]:
        """Role and name of what has the focus."""
        found = self.page.call("Runtime.evaluate", expression="document.activeElement")["result"]["objectId"]
        nodes = self.page.call("Accessibility.getPartialAXTree", objectId=found, fetchRelatives=False)["nodes"]
        return _value(nodes[0], "role"), _value(nodes[0], "name")

    def _reach(self, role: str, name: str) -> None:
        self._until(lambda: self._find(role, name), f"{role} {name!r}")
        passed = []
        for _ in range(TABS):
            at = self.focused()
            if at == (role, name):
                shown = self.page.script(_FOCUS)
                assert shown == {"ring": True, "seen": True}, f"the focus on {role} {name!r}: {shown}"
                return
            passed.append(at)
            self.key("ArrowRight" if role == at[0] == "tab" else "Tab")
        raise AssertionError(f"{role} {name!r} is out of reach of the keyboard; passed {passed}")

    def _click(self, role: str, name: str, inside: str) -> None:
        node = self._until(lambda: self._find(role, name, inside), f"{role} {name!r}")
        x, y = self._place_of(node)
        wide, high = self.page.script("[innerWidth, innerHeight]")
        assert 0 < x < wide and 0 < y < high, f"{role} {name!r} is at {x}, {y}, outside of the window"
        cover = self._ask(node, _COVER, x, y)
        assert not cover, f"{role} {name!r} at {x}, {y} is covered by {cover}"
        for kind in ("mousePressed", "mouseReleased"):
            self.page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, x=x, y=y)

    def _place_of(self, node: int) -> tuple[float, float]:
        """The middle of an element, once it is enabled and stands still for as long as a hand takes."""
        places: list[Any] = []
        while len(places) < STEADY or len(set(places[-STEADY:])) > 1 or places[-1] is None:
            assert len(places) < PATIENCE / LOOK, f"it never stands still: {places[-STEADY:]}"
            self.page.call("DOM.scrollIntoViewIfNeeded", backendNodeId=node)
            (quad, *_) = self.page.call("DOM.getContentQuads", backendNodeId=node)["quads"]
            is_enabled = self._ask(node, "function() { return !this.disabled; }")
            places.append((sum(quad[::2]) / 4, sum(quad[1::2]) / 4) if is_enabled else None)
            time.sleep(LOOK)
        return float(places[-1][0]), float(places[-1][1])

    def _ask(self, node: int, function: str, *arguments: float) -> Any:
        element = self.page.call("DOM.resolveNode", backendNodeId=node)["object"]["objectId"]
        asked = {"objectId": element, "arguments": [{"value": value} for value in arguments], "returnByValue": True}
        return self.page.call("Runtime.callFunctionOn", functionDeclaration=function, **asked)["result"]["value"]

    def _find(self, role: str, name: str, inside: str = "") -> int | None:
        """The first element with a role and a name that is not hidden; None if there is none."""
        root = self.page.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        if inside:
            root = self.page.call("DOM.querySelector", nodeId=root, selector=inside)["nodeId"]
        if not root:
            return None
        found = self.page.call("Accessibility.queryAXTree", nodeId=root, accessibleName=name, role=role)["nodes"]
        return next((int(node["backendDOMNodeId"]) for node in found if not node["ignored"]), None)

    def _until(self, look: Any, what: str) -> Any:
        deadline = time.monotonic() + PATIENCE / 3
        while not (found := look()):
            text = self.page.script("document.body.innerText")
            assert time.monotonic() < deadline, f"waited in vain for {what} after {self.clicks} clicks:\n{text}"
            time.sleep(0.05)
        return found


def _value(node: dict[str, Any], name: str) -> str:
    return str(node.get(name, {}).get("value", ""))
