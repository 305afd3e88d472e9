"""A page of Chromium, driven over its DevTools protocol: what a person would click, type and see."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PATIENCE = 90.0
_WHILE_IT_LOADS = {  # what the browser says of an expression whose page was replaced while it ran
    "Inspected target navigated or closed",
    "Execution context was destroyed.",
    "Cannot find default execution context",
}
_BY_TEXT = """((text, kinds) => {
  const all = [...document.querySelectorAll(kinds)];
  return all.find(e => e.innerText.trim() === text) || all.find(e => e.innerText.includes(text));
})(%s, %s)"""


class Page:
    """One page.

    Args:
        connection: to the page's debugger.
        base: the site's address.

    Attributes:
        rest: seconds for what moves to stand still after a wait or a click.
    """

    def __init__(self, connection: ClientConnection, base: str) -> None:
        self._connection = connection
        self._serial = 0
        self.base = base
        self.rest = 1.0

    def call(self, method: str, **params: Any) -> Any:
        """A method of the protocol, and its result."""
        answer = self._answer(method, params)
        assert "result" in answer, f"{method}: {answer}"
        return answer["result"]

    def script(self, expression: str) -> Any:
        """The value of an expression in the page; None where it fails, as it does while a page loads."""
        answer = self._answer("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        if answer.get("error", {}).get("message") in _WHILE_IT_LOADS:
            return None
        assert "result" in answer, f"{expression}: {answer}"
        return answer["result"]["result"].get("value")

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """What the browser answers to a method of the protocol."""
        self._serial += 1
        self._connection.send(json.dumps({"id": self._serial, "method": method, "params": params}))
        while True:
            answer: dict[str, Any] = json.loads(self._connection.recv(timeout=PATIENCE))
            if answer.get("id") == self._serial:
                return answer

    def wait(self, condition: str) -> None:
        """Waits until an expression is true, and for what it moves to stand still."""
        deadline = time.monotonic() + PATIENCE
        while not self.script(condition):
            assert time.monotonic() < deadline, f"{condition}\n{self.script('document.body.innerText')}"
            time.sleep(0.2)
        time.sleep(self.rest)

    def open(self, path: str, text: str) -> None:
        """Opens a page and waits for a text."""
        self.call("Page.navigate", url=self.base + path)
        self.sees("Search Dags")  # its words are loaded
        self.sees(text)

    def sees(self, text: str) -> None:
        """Waits for a text."""
        self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    def click(self, text: str, kinds: str = "button, label, a") -> None:
        """Clicks in the middle of what has a text."""
        wanted = _BY_TEXT % (json.dumps(text), json.dumps(kinds))
        self.wait(f"!!{wanted}")
        self.script(f"{wanted}.scrollIntoView({{block: 'center'}})")
        time.sleep(self.rest / 2)
        x, y, wide, high = self.script(f"(r => [r.x, r.y, r.width, r.height])({wanted}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": x + wide / 2, "y": y + high / 2}
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)
        time.sleep(self.rest)

    def types(self, field: str, text: str) -> None:
        """Types into a field of a form, by its id."""
        self.wait(f"!!document.getElementById('{field}')")
        self.script(f"document.getElementById('{field}').focus()")
        self.call("Input.insertText", text=text)
        time.sleep(0.3)

    def fills(self, label: str, text: str) -> None:
        """Types into a field, by its label."""
        field = f"document.querySelector('input[aria-label={json.dumps(label)}]')"
        labelled = f"[...document.querySelectorAll('label')].find(l => l.innerText.startsWith({json.dumps(label)}))"
        found = f"({field} || ({labelled} || document).querySelector('input'))"
        self.wait(f"!!({field} || {labelled})")
        self.script(f"{found}.focus()")
        self.call("Input.insertText", text=text)
        time.sleep(self.rest / 2)

    def picks(self, label: str, value: str) -> None:
        """Chooses an entry of a list of ours, by the list's label and the entry's value."""
        self.wait(f"!!document.querySelector('select[aria-label={json.dumps(label)}]')")
        self.script(
            f"(s => {{ Object.getOwnPropertyDescriptor(HTMLSelectElement.prototype, 'value').set.call(s, "
            f"{json.dumps(value)}); s.dispatchEvent(new Event('change', {{bubbles: true}})); }})"
            f"(document.querySelector('select[aria-label={json.dumps(label)}]'))"
        )
        time.sleep(self.rest / 2)

    def asked(self) -> dict[str, str]:
        """What the fragment of the address says."""
        found: dict[str, str] = self.script("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")
        return found

    def words(self) -> str:
        """What a page of ours says."""
        return str(self.script("document.querySelector('[data-page]').innerText"))

    def form(self) -> str:
        """What the open form says."""
        return str(self.script("document.querySelector('[data-form]').innerText"))

    def resize(self, wide: int, high: int) -> None:
        """Gives the window another size."""
        size = {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        time.sleep(self.rest / 2)

    def view(self, pipeline: str, place: str, text: str) -> None:
        """Opens a view of the page Checkpoints and waits for a text."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{self.base}/plugin/checkpoints#pipeline={pipeline}&{place}")
        self.sees(text)

    def chooses(self, field: str, text: str) -> None:
        """Chooses an entry of a list, by typing a part of it."""
        self.script(f"document.getElementById('{field}').querySelector('input').focus()")
        self.press("ArrowDown", 40)
        self.call("Input.insertText", text=text)
        time.sleep(0.5)
        self.press("Enter", 13)

    def dates(self, number: int, text: str) -> None:
        """Types a date, `2013/07/01`, into one of the page's pickers."""
        pickers = "[...document.querySelectorAll('p')].filter(e => e.innerText.startsWith('Select date'))"
        self.script(f"{pickers}[{number}].click()")
        self.wait("!!document.querySelector('input[placeholder=\"YYYY/MM/DD\"]')")
        self.script("document.querySelector('input[placeholder=\"YYYY/MM/DD\"]').focus()")
        self.call("Input.insertText", text=text)
        self.press("Enter", 13)
        self.press("Escape", 27)

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key, down and up; a button of the browser's own wants the text of Enter too."""
        for kind, typed in (("keyDown", {"text": text} if text else {}), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)
        time.sleep(0.5)

    def picture(self, file: Path, selector: str = "body", cut: tuple[int, int, int] = (0, 0, 10_000)) -> None:
        """Writes a picture of one element, less the pixels left of, above and below a cut."""
        self.script("document.activeElement.blur()")
        self.script(f"document.querySelector({json.dumps(selector)}).scrollIntoView()")
        time.sleep(0.5)
        found = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y, wide, high = self.script(f"(r => [r.x, r.y, r.width, r.height])({found})")
        left, above, below = cut
        clip = {"x": x + left, "y": y + above, "width": wide - left, "height": min(high, below) - above, "scale": 1}
        image = self.call("Page.captureScreenshot", format="png", clip=clip)["data"]
        file.write_bytes(base64.b64decode(image))


class Browser:
    """Chromium without a window. Its pages follow one another: each finds what the earlier ones have cached.

    A page begins with no cookie and nothing in its site's storage, as in a new profile, and the browser need not load
    and compile Airflow's own page again.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="chromium-"))
        program = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0"]
        command = [program, *options, f"--user-data-dir={self._folder}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @contextmanager
    def page(
        self, base: str, token: str | None, size: tuple[int, int] = (1000, 1400), theme: str = "light"
    ) -> Iterator[Page]:
        """A new page, logged in to Airflow by a token; not logged in without one. No two are open at the same time."""
        target = self._ask("PUT", "/json/new?about:blank")
        try:
            with connect(target["webSocketDebuggerUrl"], max_size=None, proxy=None) as connection:
                page = Page(connection, base)
                page.resize(*size)
                page.call("Network.clearBrowserCookies")
                page.call("Storage.clearDataForOrigin", origin=base, storageTypes="local_storage,indexeddb")
                if token is not None:
                    page.call("Network.setCookie", name="_token", value=token, url=f"{base}/")
                page.call("Page.navigate", url=base)
                stored = f"localStorage.setItem('theme', '{theme}') === undefined"
                page.wait(f"{stored} && location.href.startsWith('{base}')")
                yield page
        finally:
            self._ask("GET", f"/json/close/{target['id']}")

    def close(self) -> None:
        """Ends it, and removes its profile."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, method: str, path: str) -> Any:
        """What the debugger answers, once the browser has written its port."""
        port, deadline = self._folder / "DevToolsActivePort", time.monotonic() + PATIENCE
        while not port.is_file() or len(port.read_text().splitlines()) < 2:
            assert time.monotonic() < deadline, "Chromium did not start"
            time.sleep(0.1)
        url = f"http://127.0.0.1:{port.read_text().splitlines()[0]}{path}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(url, method=method), timeout=PATIENCE) as answer:  # noqa: S310  (our own)
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text


@contextmanager
def chromium(
    base: str, token: str | None, size: tuple[int, int] = (1000, 1400), theme: str = "light"
) -> Iterator[Page]:
    """A page of a browser of its own, with nothing in its caches; see `Browser.page`."""
    browser = Browser()
    try:
        with browser.page(base, token, size, theme) as page:
            yield page
    finally:
        browser.close()
