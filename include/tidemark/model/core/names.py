"""Names that may reach a path or SQL, and checkpoint ids as people write them."""

import re
from collections.abc import Container
from dataclasses import dataclass

from tidemark.errors import NameRefusedError, UsageError

EMBEDDED_BROKER = "localhost:9092"
"""Stands for the embedded broker, whatever its port, in the names of topics for lineage and in Airflow's assets."""
_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
_NUMBERED = re.compile(r"t\d+", re.ASCII)
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}", re.ASCII)


def checked_name(kind: str, name: str) -> str:
    """Returns `name` if it is on the allow-list.

    Args:
        kind: the kind of name, for the message ("pipeline", "uid", "topic", "timeline", "savepoint").
        name: the candidate.

    Raises:
        NameRefusedError: the name has other characters than letters, digits, `_`, `.` and `-`, more than 63 of them, or
            contains `..`. `@` is refused, because Delta would read a final `@v<digits>` as time travel.
    """
    if not _ALLOWED.fullmatch(name) or ".." in name:
        raise NameRefusedError(
            f"{kind} name refused: {name!r}",
            next="use letters, digits, '_', '.' and '-', at most 63, starting with a letter or digit, no '..'.",
        )
    return name


def checked_timeline(name: str) -> str:
    """Returns `name` if you may give it to a timeline.

    Raises:
        NameRefusedError: see `checked_name`; or it is `t<n>`, as Tidemark names the first timeline and those of
            restores.
    """
    if _NUMBERED.fullmatch(checked_name("timeline", name)):
        raise NameRefusedError(
            f"timeline name refused: {name!r}", next="t<n> is reserved for restores: use another name."
        )
    return name


def checked_field(name: str) -> str:
    """Returns `name` if it is a valid column name: a letter, then letters, digits and `_`, at most 63 in total.

    Raises:
        NameRefusedError: it is not; a leading underscore is reserved for Tidemark's own columns.
    """
    if not is_field(name):
        raise NameRefusedError(
            f"field name refused: {name!r}",
            next="use a letter, then letters, digits and '_', at most 63.",
        )
    return name


def operator_of(output: str, operators: Container[str]) -> str:
    """Returns the uid of the operator that an output belongs to.

    Args:
        output: uid of the output: the operator's own, or `<uid>.<name>`.
        operators: uids of the operators.

    Example:
        >>> operator_of("watch.late", {"watch"}), operator_of("watch", {"watch"})
        ('watch', 'watch')
    """
    return output if output in operators else output.rpartition(".")[0]


def parse_id(text: str) -> int:
    """Parses the number of a checkpoint, written as `chk-17` or `17`.

    Raises:
        UsageError: it is neither.
    """
    digits = text.removeprefix("chk-")
    if not digits.isdecimal():
        raise UsageError(f"not a checkpoint id: {text!r}", next="write chk-17 or 17.")
    return int(digits)


def is_field(name: str) -> bool:
    """Whether `name` is a valid column name."""
    return _FIELD.fullmatch(name) is not None


# A folder of a bucket by its URL, where a warehouse or an export may be instead of on a disk.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FOLDER = re.compile(r"[\w.+=@ -]+(/[\w.+=@ -]+)*")


def is_url(place: str) -> bool:
    """Whether a location is not on this machine's disk."""
    return "://" in place


@dataclass(frozen=True, slots=True)
class S3Url:
    """`s3://BUCKET/FOLDER`.

    Attributes:
        bucket: its bucket.
        prefix: path of the folder in there, without slashes at its ends.
    """

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @classmethod
    def parsed(cls, url: str) -> "S3Url":
        """Parses a URL.

        Raises:
            UsageError: the text is not the URL of a folder in a bucket. The message omits it, because it may contain a
                password.
        """
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3":
            raise UsageError(
                "neither a local folder nor a folder in S3", next="name a local folder, or s3://BUCKET/FOLDER."
            )
        if not _BUCKET.fullmatch(bucket):
            raise UsageError("the URL names no bucket", next="write s3://BUCKET/FOLDER; do not put credentials in it.")
        prefix = prefix.removesuffix("/")
        if not _FOLDER.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")):
            raise UsageError(
                f"the URL names no folder in the bucket {bucket}",
                next="write s3://BUCKET/FOLDER; the folder is a path of names joined by slashes.",
            )
        return cls(bucket, prefix)
