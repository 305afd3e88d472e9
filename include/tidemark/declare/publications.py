"""What comes out of state: the targets that a `Fold` or `Process` publishes its current state to.

A publication brings its target from the last published checkpoint to the newest one. It runs in parallel with later
checkpoints, and neither fails nor delays any.
"""

import re
from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar
from urllib.parse import urlsplit

from tidemark.errors import DeclarationError, UsageError
from tidemark.model.core.names import S3Url, checked_name

P = TypeVar("P", bound="Publication")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class Publication(ABC):
    """A target of published state: a frozen dataclass.

    Attributes:
        kind: the name under which records keep the target. Never rename a kind.
        suffix: of the default name.
        one_by_one: whether each checkpoint is published, if it is still kept, instead of the newest one.
        is_delta_table: whether the place is a Delta table, of which others may make views.
        name: names the publication, unique in the pipeline; progress is found by it. Default: `<uid>-<suffix>`.
    """

    kind: ClassVar[str]
    suffix: ClassVar[str]
    one_by_one: ClassVar[bool] = False
    is_delta_table: ClassVar[bool] = False

    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.name:
            checked_name("publication", self.name)

    def named(self: P, uid: str) -> P:
        """Returns it with its name, for an operator."""
        return self if self.name else replace(self, name=checked_name("publication", f"{uid}-{self.suffix}"))

    @classmethod
    def restored(cls: type[P], name: str, options: Mapping[str, str]) -> P:
        """Returns it from the options that records keep."""
        raise NotImplementedError

    @property
    def place(self) -> str:
        """Where the state goes, for people."""
        raise NotImplementedError

    @property
    def options(self) -> Mapping[str, str]:
        """What records keep of it: enough to open the target later, without secrets."""
        raise NotImplementedError


@dataclass(frozen=True)
class DeltaMirror(Publication):
    """The current state as a plain Delta table, with one version for each publication.

    >>> from dataclasses import dataclass
    >>> from tidemark import Fold, state
    >>> from tidemark.targets import DeltaMirror
    >>> @dataclass(frozen=True)
    ... class Flight:
    ...     tail_number: str
    ...     distance: int
    >>> class Aircraft(state.Keyed):
    ...     distance: int = state.sum("distance")
    >>> mirror = DeltaMirror("/lake/aircraft")
    >>> fold = Fold("aircraft", key_by="tail_number", state=Aircraft, publish=[mirror])
    >>> [publication.name for publication in fold.publish]
    ['aircraft-mirror']

    Any reader of Delta opens it without Tidemark: the columns are those of `tidemark state export`. Only publications
    write to it. Others may compact and clean it up; after any other change of theirs, publications stop with
    `MIRROR_CHANGED` until `tidemark publication rebuild`.

    Attributes:
        path: the table: an absolute path, or `s3://BUCKET/FOLDER` in the object store of the settings.
        deletion_vectors: mark replaced rows in deletion vectors, so that a publication writes about as much as has
            changed. Without them, files with a replaced row are written again, for readers that refuse such tables.
    """

    kind = "delta-mirror"
    suffix = "mirror"
    is_delta_table = True

    path: str
    deletion_vectors: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_path(type(self).__name__, self.path)

    @classmethod
    def restored(cls, name: str, options: Mapping[str, str]) -> "DeltaMirror":
        """See `Publication.restored`."""
        return cls(options["path"], name=name, deletion_vectors=options["deletion_vectors"] == "true")

    @property
    def place(self) -> str:
        """The table."""
        return self.path.rstrip("/") or "/"

    @property
    def options(self) -> Mapping[str, str]:
        """Path, and whether it has deletion vectors."""
        return {"path": self.place, "deletion_vectors": str(self.deletion_vectors).lower()}


@dataclass(frozen=True)
class DeltaChangelog(Publication):
    """The changes of state as a plain Delta table: for each checkpoint the keys that it inserted, updated or deleted.

    >>> from tidemark.targets import DeltaChangelog
    >>> DeltaChangelog("/lake/aircraft_changes").named("aircraft").name
    'aircraft-changes'

    A row has the key columns, `_op` (`insert`, `update` or `delete`), the structs `before` and `after` with the other
    columns of `tidemark state export`, and the ids `_from` and `_checkpoint` of the checkpoints that it leads from and
    to. Checkpoints are published one by one while they are kept; `_from` shows where some were released before. The
    newest row of each key is its state.

    Attributes:
        path: the table: an absolute path, or `s3://BUCKET/FOLDER` in the object store of the settings.
    """

    kind = "delta-changelog"
    suffix = "changes"
    one_by_one = True
    is_delta_table = True

    path: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_path(type(self).__name__, self.path)

    @classmethod
    def restored(cls, name: str, options: Mapping[str, str]) -> "DeltaChangelog":
        """See `Publication.restored`."""
        return cls(options["path"], name=name)

    @property
    def place(self) -> str:
        """The table."""
        return self.path.rstrip("/") or "/"

    @property
    def options(self) -> Mapping[str, str]:
        """The path."""
        return {"path": self.place}


@dataclass(frozen=True)
class JdbcUpsert(Publication):
    """The current state as a table of PostgreSQL: each publication is one transaction, with the checkpoint's id.

    >>> from tidemark.targets import JdbcUpsert
    >>> JdbcUpsert("postgresql://app@db.example.com/sales", table="gold.aircraft").place
    'postgresql://db.example.com/sales#gold.aircraft'

    Rows have the columns of `tidemark state export`, with the key columns as primary key. Structs and maps are `jsonb`.
    The table `tidemark_publications` in the same schema has a row for each publication, with its checkpoint.

    Attributes:
        url: the database, as in `postgresql://user@host:5432/database`. Missing parts, such as the password, come
            from the variables and the password file of libpq (`PGPASSWORD`, `PGPASSFILE`); records and messages
            contain neither user nor password.
        table: the table, with or without a schema. Publications create it.
    """

    kind = "postgresql-upsert"
    suffix = "upsert"

    url: str = field(repr=False)
    table: str = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if urlsplit(self.url).scheme not in ("postgresql", "postgres"):
            raise DeclarationError(
                "a JdbcUpsert whose address is not one of PostgreSQL", next="write postgresql://user@host/database."
            )
        if not _TABLE.fullmatch(self.table):
            raise DeclarationError(
                f"a JdbcUpsert into the table {self.table!r}",
                next="write table or schema.table, of letters, digits and underscores.",
            )

    @classmethod
    def restored(cls, name: str, options: Mapping[str, str]) -> "JdbcUpsert":
        """See `Publication.restored`; user, password and parameters then come from the variables of libpq."""
        return cls(options["url"], table=options["table"], name=name)

    @property
    def place(self) -> str:
        """Database and table."""
        return f"{self.options['url']}#{self.table}"

    @property
    def options(self) -> Mapping[str, str]:
        """Database and table, without user and password."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return {"url": f"postgresql://{host}{parts.path}", "table": self.table}


@dataclass(frozen=True)
class KafkaUpsert(Publication):
    """The current state as a compacted topic: the newest record of each key is its row, and a tombstone deletes it.

    >>> from tidemark.targets import KafkaUpsert
    >>> KafkaUpsert("aircraft").named("aircraft").name
    'aircraft-topic'

    Keys and values are JSON: the key columns, and the columns of `tidemark state export`. Each publication writes one
    transaction (several for more than 100,000 rows), so read it with `isolation.level=read_committed`.

    Attributes:
        topic: the topic, on the cluster of the settings. Publications create it; one that exists must be
            compacted, and empty until a rebuild with `--replace` may replace its rows.
    """

    kind = "kafka-upsert"
    suffix = "topic"

    topic: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _TOPIC.fullmatch(self.topic):
            raise DeclarationError(
                f"a KafkaUpsert into the topic {self.topic!r}",
                next="use letters, digits, dots, underscores and hyphens, at most 249.",
            )

    @classmethod
    def restored(cls, name: str, options: Mapping[str, str]) -> "KafkaUpsert":
        """See `Publication.restored`."""
        return cls(options["topic"], name=name)

    @property
    def place(self) -> str:
        """The topic."""
        return f"topic {self.topic}"

    @property
    def options(self) -> Mapping[str, str]:
        """The topic; the cluster is that of the settings."""
        return {"topic": self.topic}


KINDS: Mapping[str, type[Publication]] = {
    cls.kind: cls for cls in (DeltaMirror, DeltaChangelog, JdbcUpsert, KafkaUpsert)
}
"""Publications by the kind that records keep."""


def _check_path(what: str, path: str) -> None:
    if "://" in path:
        try:
            S3Url.parsed(path)
        except UsageError as error:
            raise DeclarationError(f"a {what} at a wrong place: {error.what}", next=error.next) from error
    elif not path.startswith("/"):
        raise DeclarationError(
            f"a {what} at a relative path: {path!r}",
            next="give an absolute path, or s3://BUCKET/FOLDER: publications may run in another working directory.",
        )


def thaw(kind: str, name: str, options: Mapping[str, str]) -> Publication:
    """Restores a publication from its record.

    Raises:
        UsageError: this release has no such target.
    """
    if kind not in KINDS:
        raise UsageError(
            f"{name}: this release has no target of the kind {kind!r}", next="install the release that has it."
        )
    return KINDS[kind].restored(name, options)


def named(uid: str, publications: Iterable[Publication]) -> tuple[Publication, ...]:
    """Returns the publications of an operator with their names.

    Raises:
        DeclarationError: something else is declared as a publication.
    """
    found = tuple(publications)
    wrong = [p for p in found if not isinstance(p, Publication)]
    if wrong:
        raise DeclarationError(
            f"{uid}: publish={wrong[0]!r} is no publication",
            next='declare one, as in publish=[DeltaMirror("/lake/x")].',
        )
    return tuple(p.named(uid) for p in found)
