"""The client of registries against a small server that misbehaves. The real registry is in `tests/engine`."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tidemark import formats
from tidemark.cli.doctor import registries_answer
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.schema_book import StoredBook, StoredSchemas
from tidemark.environment import open_registry
from tidemark.errors import RegistryUnavailableError, SchemaChangedError, UsageError
from tidemark.kafka.schema_registry import PAUSES, RECHECK, HttpRegistry, RegistryLogin
from tidemark.model.checkpoint.manifest import BatchFacts
from tidemark.model.schema.registry_schemas import SchemaText
from tidemark.settings import load_settings
from tidemark.testing.twin.memory import MemoryStore

UNKNOWN = (404, {"error_code": 40403, "message": "Schema not found"})


class Server:
    """Answers each path by a script of (status, body), the last of which stays."""

    def __init__(self, script: dict[str, list[tuple[int, Any]]]) -> None:
        self.script, self.seen = script, list[tuple[str, str | None]]()
        self.address = ""

    def answer(self, path: str, login: str | None) -> tuple[int, Any]:
        self.seen.append((path, login))
        answers = self.script.get(path, [UNKNOWN])
        return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def serving(script: dict[str, list[tuple[int, Any]]]) -> Iterator[Server]:
    server = Server(script)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = server.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", body)
            self.end_headers()
            self.wfile.write(body.encode() if isinstance(body, str) else json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=found.serve_forever, daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{found.server_port}"
    try:
        yield server
    finally:
        found.shutdown()
        found.server_close()


def client(address: str, waits: list[float], **login: Any) -> HttpRegistry:
    return HttpRegistry(login=RegistryLogin(address=address, **login), sleep=waits.append)


def test_texts_come_with_what_they_refer_to_in_order_of_need() -> None:
    script: dict[str, list[tuple[int, Any]]] = {
        "/schemas/ids/7": [(200, {"schema": "a", "references": [{"name": "B", "subject": "b/x", "version": 2}]})],
        "/subjects/b%2Fx/versions/2": [
            (200, {"schema": "b", "references": [{"name": "C", "subject": "c", "version": 1}]})
        ],
        "/subjects/c/versions/1": [(200, {"schema": "c"})],
        "/schemas/ids/8": [(200, {"schema": "p", "schemaType": "PROTOBUF"})],
    }
    with serving(script) as server:
        found = client(server.address + "/", []).ask("default", [7, 8])
    assert found == {
        7: SchemaText(type="AVRO", text="a", references=(("C", "c"), ("B", "b"))),
        8: SchemaText(type="PROTOBUF", text="p"),
    }


def test_an_unknown_id_is_asked_for_once_more() -> None:
    waits = list[float]()
    with serving({"/schemas/ids/7": [UNKNOWN, (200, {"schema": "late"})]}) as server:
        assert client(server.address, waits).ask("default", [7, 9], again=[1]).keys() == {7}
        asked = [path for path, _ in server.seen]
    assert waits == [RECHECK] and RECHECK < 1, "a topic with an id that stays unknown pays it in every checkpoint"
    assert sorted(asked) == [f"/schemas/ids/{id}" for id in (1, 7, 7, 9, 9)]


def test_a_registry_that_goes_away_before_it_is_asked_once_more_is_unavailable() -> None:
    waits = list[float]()
    unavailable = pytest.raises(RegistryUnavailableError, match="503")
    with serving({"/schemas/ids/7": [UNKNOWN, (503, "away")]}) as server, unavailable:
        client(server.address, waits).ask("default", [7])
    assert waits == [RECHECK, *PAUSES]


def test_a_probe_asks_once_for_an_id_that_no_schema_has() -> None:
    waits = list[float]()
    with serving({}) as server:
        client(server.address, waits).probe("default")
        assert [path for path, _ in server.seen] == ["/schemas/ids/0"]
        server.script["/schemas/ids/0"] = [(503, "away")]
        with pytest.raises(RegistryUnavailableError, match="'default' is unavailable: HTTP 503"):
            client(server.address, waits).probe("default")
    assert waits == []


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_registry_that_stumbles_is_asked_again(status: int) -> None:
    waits = list[float]()
    with serving({"/schemas/ids/7": [(status, "away"), (200, {"schema": "s"})]}) as server:
        assert client(server.address, waits).ask("default", [7])[7].text == "s"
    assert waits == [PAUSES[0]]


@pytest.mark.parametrize(
    ("answer", "waited"),
    [
        ((503, "away"), len(PAUSES)),
        ((401, "who are you"), 0),
        ((404, "<html>a proxy</html>"), 0),
        ((404, {"error_code": 404}), 0),
        ((200, "<html>"), len(PAUSES)),
        ((200, {"no": "schema"}), 0),
    ],
)
def test_what_is_no_answer_of_a_registry_is_never_an_unknown_id(answer: tuple[int, Any], waited: int) -> None:
    waits = list[float]()
    unavailable = pytest.raises(RegistryUnavailableError, match="'default' is unavailable")
    with serving({"/schemas/ids/7": [answer]}) as server, unavailable:
        client(server.address, waits).ask("default", [7])
    assert len(waits) == waited


def test_nobody_there_is_unavailable_after_patience() -> None:
    waits = list[float]()
    with pytest.raises(RegistryUnavailableError, match="refused"):
        client("http://127.0.0.1:9", waits).ask("default", [7])
    assert waits == list(PAUSES)


def test_the_password_goes_to_the_registry_only(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("geheim\n")
    with serving({}) as other:
        with serving({"/schemas/ids/7": [(302, f"{other.address}/schemas/ids/7")]}) as server:
            asked = client(server.address, [], user="ann", password_file=tmp_path / "password")
            with pytest.raises(RegistryUnavailableError) as refused:
                asked.ask("default", [7])
        assert server.seen == [("/schemas/ids/7", "Basic " + base64.b64encode(b"ann:geheim").decode())]
        assert other.seen == []
    assert "geheim" not in f"{refused.value}{asked!r}"


def test_several_registries_have_names() -> None:
    login = RegistryLogin(address="default=http://a:1, eu=https://b/api/")
    assert (login.address_of("default"), login.address_of("eu")) == ("http://a:1", "https://b/api")
    assert RegistryLogin(address="http://a:1").address_of("eu") == "http://a:1"
    for address in ("eu=http://a:1", "http://a:1,http://b:1", "ftp://a", "http://ann:geheim@a", "eu=x,default=http:/a"):
        with pytest.raises(UsageError) as refused:
            RegistryLogin(address=address).address_of("default")
        assert "geheim" not in str(refused.value)
    with pytest.raises(UsageError, match="TIDEMARK_SCHEMA_REGISTRY is not set"):
        RegistryLogin(address="").address_of("default")


@pytest.mark.parametrize("name", ["password_file", "ca", "certificate"])
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    with serving({"/schemas/ids/7": [(200, {"schema": "s"})]}) as server:
        login: dict[str, Any] = {name: tmp_path / "nowhere", "user": "ann"}
        with pytest.raises(UsageError, match="nowhere cannot be read"):
            client(server.address, [], **login).ask("default", [7])


def test_settings_become_a_login_without_showing_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_SCHEMA_REGISTRY", "https://registry:8081")
    monkeypatch.setenv("TIDEMARK_SCHEMA_REGISTRY_USER", "ann")
    monkeypatch.setenv("TIDEMARK_SCHEMA_REGISTRY_PASSWORD", "geheim")
    monkeypatch.setenv("TIDEMARK_SCHEMA_REGISTRY_SSL_CA", "ca.pem")
    settings = load_settings(root=str(tmp_path))
    made = open_registry(settings)
    assert isinstance(made, HttpRegistry)
    assert made.login.headers()["Authorization"] == "Basic " + base64.b64encode(b"ann:geheim").decode()
    assert (made.login.address_of("default"), made.login.ca) == ("https://registry:8081", tmp_path / "ca.pem")
    assert "geheim" not in f"{settings!r}{made!r}"


def test_the_doctor_asks_every_registry_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(address: str) -> tuple[str, str]:
        monkeypatch.setenv("TIDEMARK_SCHEMA_REGISTRY", address)
        finding = registries_answer(load_settings(root=str(tmp_path)))
        assert (finding.remedy is None) == (finding.verdict == "ok")
        return finding.verdict, finding.detail

    with serving({}) as server, serving({"/schemas/ids/0": [(401, "who are you")]}) as strict:
        assert found(server.address) == ("ok", "default: answers")
        assert found(f"default={server.address},eu={server.address}") == ("ok", "default, eu: answers")
        verdict, detail = found(f"default={server.address},eu={strict.address},us=http://127.0.0.1:9")
    assert verdict == "missing"
    assert detail.startswith("the schema registry 'eu' is unavailable: HTTP 401") and "; " in detail
    assert "the schema registry 'us' is unavailable" in detail and "'default'" not in detail
    assert found("ftp://somewhere")[0] == "missing"
    assert found("") == ("ok", "none configured; formats with schemas of a registry need TIDEMARK_SCHEMA_REGISTRY")


class Answers:
    """A registry in a dict."""

    def __init__(self, **texts: str) -> None:
        self.texts = {int(id.removeprefix("n")): SchemaText(type="AVRO", text=text) for id, text in texts.items()}
        self.asked = list[tuple[str, tuple[int, ...], tuple[int, ...]]]()

    def ask(self, registry: str, ids: Any, again: Any = ()) -> dict[int, SchemaText]:
        self.asked.append((registry, tuple(ids), tuple(again)))
        return {id: text for id, text in self.texts.items() if id in (*ids, *again)}


def test_a_book_asks_once_stores_first_and_believes_the_store() -> None:
    store = MemoryStore()
    stored, first = StoredSchemas(Objects(store)), Answers(n1='{"type": "int"}', n2='"long"')
    book = StoredBook(stored, first, ignore_step)
    book.learn("default", [1, 3])
    book.learn("default", [3, 1])
    assert first.asked == [("default", (1, 3), ())]
    assert (book.known, book.unknown) == ({"default": (1,)}, {"default": (3,)})
    assert book.bind(formats.Avro()).schemas.texts == {1: SchemaText(type="AVRO", text='{"type": "int"}')}
    assert sorted(store.objects)[-1] == "schemas/default/0000000001.json"

    later = StoredBook(stored, Answers(n1='{"type":  "int"}', n2='"long"', n3='"string"'), ignore_step)
    later.learn("default", [1, 2, 3])
    assert (later.known, later.unknown) == ({"default": (1, 2, 3)}, {}) and stored.ids("default") == [1, 2, 3]
    assert stored.find("default", 1) == SchemaText(type="AVRO", text='{"type": "int"}'), "the first answer stays"
    facts = BatchFacts(records=1, watermark_ms=None, bytes=1, unknown_schemas={"default": (3,)})
    assert stored.bind(formats.Avro(), facts).schemas.texts.keys() == {1, 2}
    assert stored.bind(formats.Avro(), replace(facts, schemas={"default": (2,)})).schemas.texts.keys() == {2}
    assert stored.bind(formats.Avro()).schemas.texts.keys() == {1, 2, 3}


def test_a_known_id_with_another_schema_is_noticed_before_a_new_one_is_used() -> None:
    stored = StoredSchemas(Objects(MemoryStore()))
    StoredBook(stored, Answers(n1='"int"'), ignore_step).learn("default", [1])
    other = Answers(n1='"long"', n2='"string"')
    with pytest.raises(SchemaChangedError, match="under id 1"):
        StoredBook(stored, other, ignore_step).learn("default", [2])
    assert stored.ids("default") == [1]
    StoredBook(stored, other, ignore_step).learn("other", [1, 2])
    assert stored.ids("other") == [1, 2]


def test_of_two_attempts_that_ask_at_the_same_moment_the_first_counts() -> None:
    store = MemoryStore()
    first, second = StoredSchemas(Objects(store)), StoredSchemas(Objects(store))
    first.put("default", 1, SchemaText(type="AVRO", text='"int"'))
    assert second.put("default", 1, SchemaText(type="AVRO", text='"int"')).text == '"int"'
    with pytest.raises(SchemaChangedError):
        second.put("default", 1, SchemaText(type="AVRO", text='"long"'))
