"""A client of schema registries with Confluent's API, on the standard library: it reads schemas by their ids.

An id that the registry does not know may be known a moment later, because registries replicate: the client asks once
more before it says so. A registry that does not answer is asked again, and then it is an error, never an unknown id.
"""

import base64
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tidemark.errors import RegistryUnavailableError, UsageError
from tidemark.model.schema.registry_schemas import SchemaText

TIMEOUT = 10.0
"""Seconds to wait for a connection, and for each part of an answer."""
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between tries, of a registry that does not answer."""
RECHECK = 0.5
"""Seconds after which ids that the registry does not know are asked for a second and last time."""
_LONGEST = 32 * 2**20
_DEEPEST = 32
_NAMED = re.compile(r"[\w-]+=")
_ADDRESS = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?(/[\w./-]*)?", re.ASCII)
_UNKNOWN = (40401, 40402, 40403)
"""Confluent's codes: no such subject, version, schema. A 404 without one is not the registry's."""
_PASSING = (408, 429)


class _Refused(Exception):
    """An answer that is not a schema. `status` 0 = there was none."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because urllib would send the password to the other host."""

    def redirect_request(self, *_: object) -> None:
        """See the base class: None makes the redirect an error."""


@dataclass(frozen=True, kw_only=True)
class RegistryLogin:
    """How to reach registries. Paths name PEM files.

    Attributes:
        address: the base URL, or one per registry: `default=https://HOST:PORT,eu=https://HOST:PORT`.
        user: for basic authentication.
        password: its password, or
        password_file: a file with it.
        ca: the authority that signed the registry's certificate; None = those that the system trusts.
        certificate: of this client.
        key: the certificate's key.
    """

    address: str
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def address_of(self, registry: str) -> str:
        """Returns the base URL of a registry, without a slash at its end.

        Raises:
            UsageError: the variable names no registry of this name, or is no list of addresses.
        """
        if not self.address:
            raise UsageError(
                f"values name schemas of the registry {registry!r}, and TIDEMARK_SCHEMA_REGISTRY is not set",
                next="set it to the registry's address, https://HOST:PORT.",
            )
        parts = [part.strip() for part in self.address.split(",")]
        named = dict(part.split("=", 1) for part in parts if _NAMED.match(part))
        found = named.get(registry) if named else (parts[0] if len(parts) == 1 else None)
        if found is None or not _ADDRESS.fullmatch(found):
            raise UsageError(
                f"TIDEMARK_SCHEMA_REGISTRY has no address of the registry {registry!r}",
                next="set it to https://HOST:PORT, without a user name, or to NAME=https://HOST:PORT,NAME=….",
            )
        return found.rstrip("/")

    def headers(self) -> dict[str, str]:
        """Returns the headers of every request, with the password.

        Raises:
            UsageError: the password's file cannot be read.
        """
        password = self.password
        if self.password_file is not None:
            try:
                password = self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise _unreadable("PASSWORD_FILE", self.password_file) from error
        login = base64.b64encode(f"{self.user}:{password}".encode()).decode()
        accept = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        return accept | ({"Authorization": f"Basic {login}"} if self.user else {})

    def tls(self) -> ssl.SSLContext:
        """Returns the TLS settings; host names are always checked.

        Raises:
            UsageError: a file cannot be read.
        """
        try:
            made = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                made.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise _unreadable("SSL_CA, _CERTIFICATE or _KEY", self.certificate or self.ca) from error
        return made


def registry_names(address: str) -> list[str]:
    """Returns the names of the registries in `TIDEMARK_SCHEMA_REGISTRY`; an address without a name serves `default`.

    >>> registry_names("default=https://a:8081, eu=https://b:8081"), registry_names("https://a:8081")
    (['default', 'eu'], ['default'])
    """
    parts = [part.strip() for part in address.split(",") if part.strip()]
    named = [part.partition("=")[0] for part in parts if _NAMED.match(part)]
    return named or ["default"] * bool(parts)


@dataclass(frozen=True, kw_only=True)
class HttpRegistry:
    """See `ports.SchemaRegistry`. `sleep` waits between tries."""

    login: RegistryLogin
    sleep: Callable[[float], None] = time.sleep

    def ask(self, registry: str, ids: Collection[int], again: Collection[int] = ()) -> Mapping[int, SchemaText]:
        """See `ports.SchemaRegistry`."""
        address = self.login.address_of(registry)
        found = self._known(registry, address, (*again, *ids))
        # `again` may have been deleted from the registry since; only new ids are worth waiting for.
        left = [id for id in ids if id not in found]
        if left:
            self.sleep(RECHECK)
            found |= self._known(registry, address, left)
        return found

    def probe(self, registry: str) -> None:
        """Asks once for an id that no schema has, with the right that a checkpoint needs; `tidemark doctor` calls it.

        Raises:
            RegistryUnavailableError: the registry did not answer, or refused.
            UsageError: it has no address, or a setting is invalid.
        """
        try:
            self._get(f"{self.login.address_of(registry)}/schemas/ids/0")
        except _Refused as error:
            raise _unavailable(registry, str(error)) from error

    def _known(self, registry: str, address: str, ids: Collection[int]) -> dict[int, SchemaText]:
        answers = ((id, self._patiently(registry, f"{address}/schemas/ids/{id}")) for id in ids)
        return {id: self._schema(registry, address, body) for id, body in answers if body is not None}

    def _schema(self, registry: str, address: str, body: Mapping[str, Any]) -> SchemaText:
        references = dict[str, str]()
        self._collect(registry, address, body, references, 0)
        return SchemaText(
            type=body.get("schemaType") or "AVRO", text=body["schema"], references=tuple(references.items())
        )

    def _collect(self, registry: str, address: str, body: Mapping[str, Any], into: dict[str, str], depth: int) -> None:
        """Adds the texts that a schema refers to, each after those that it refers to itself."""
        if depth > _DEEPEST:
            raise _unavailable(registry, "its references form a circle")
        for reference in body.get("references") or ():
            name = str(reference["name"])
            if name in into:
                continue
            path = f"/subjects/{quote(str(reference['subject']), safe='')}/versions/{int(reference['version'])}"
            found = self._patiently(registry, address + path)
            if found is None:
                raise _unavailable(registry, f"it lacks {name}, to which a schema refers")
            self._collect(registry, address, found, into, depth + 1)
            into[name] = found["schema"]

    def _patiently(self, registry: str, url: str) -> Mapping[str, Any] | None:
        """Returns an answer; None = the registry does not know the schema."""
        for pause in (*PAUSES, None):
            try:
                return self._get(url)
            except _Refused as error:
                passing = error.status == 0 or error.status >= 500 or error.status in _PASSING
                if pause is None or not passing:
                    raise _unavailable(registry, str(error)) from error
                self.sleep(pause)
        return None

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        return urllib.request.build_opener(_Straight, urllib.request.HTTPSHandler(context=self.login.tls()))

    @cached_property
    def _headers(self) -> dict[str, str]:
        return self.login.headers()

    def _get(self, url: str) -> Mapping[str, Any] | None:
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310  (`address_of` takes http(s) only)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                body = json.loads(answer.read(_LONGEST))
        except urllib.error.HTTPError as error:
            with error:
                body = error.read(_LONGEST)
            if error.code == 404 and _code_of(body) in _UNKNOWN:
                return None
            raise _Refused(f"HTTP {error.code} {error.reason}", error.code) from error
        except (OSError, ValueError) as error:
            raise _Refused(str(getattr(error, "reason", error)) or type(error).__name__) from error
        if not isinstance(body, dict) or not isinstance(body.get("schema"), str):
            raise _Refused("its answer is no schema", 200)
        return body


def _code_of(body: bytes) -> object:
    try:
        return json.loads(body)["error_code"]
    except (ValueError, KeyError, TypeError):
        return None


def _unavailable(registry: str, why: str) -> RegistryUnavailableError:
    return RegistryUnavailableError(
        f"the schema registry {registry!r} is unavailable: {why}",
        safe="every completed checkpoint is intact; no record was lost or decoded without its schema.",
        next="check the registry, TIDEMARK_SCHEMA_REGISTRY and its credentials, then run the pipeline again.",
    )


def _unreadable(name: str, path: Path | None) -> UsageError:
    return UsageError(
        f"TIDEMARK_SCHEMA_REGISTRY_{name}: {path} cannot be read",
        next="correct the path in the variable or in .env; certificates and keys are PEM files.",
    )
