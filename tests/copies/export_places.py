"""Where exports may lie, as a test sees it: a folder of this machine, or one of a bucket."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.copies.transfer_pipeline import TransferPipeline
from tests.support.cli import Answer
from tests.support.s3 import SECRETS, Bucket


class ExportPlace(Protocol):
    """One export, or none yet."""

    @property
    def at(self) -> str:
        """What a command is given."""

    @property
    def variables(self) -> dict[str, str]:
        """What the environment has to hold."""

    def files(self) -> dict[str, bytes]:
        """Everything in it, by path."""

    def put(self, path: str, body: bytes) -> None:
        """Writes a file, or replaces it."""

    def remove(self, path: str) -> None:
        """Removes a file."""


@dataclass(frozen=True)
class FolderPlace:
    """A folder of this machine.

    Attributes:
        folder: it; its parent is there.
    """

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def at(self) -> str:
        return str(self.folder)

    def files(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.folder)): p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}

    def put(self, path: str, body: bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(body)

    def remove(self, path: str) -> None:
        (self.folder / path).unlink()


@dataclass(frozen=True)
class BucketPlace:
    """A folder of a bucket.

    Attributes:
        bucket: it.
        prefix: path of the folder.
    """

    bucket: Bucket
    prefix: str = "backups/market"

    @property
    def at(self) -> str:
        return f"s3://{self.bucket.name}/{self.prefix}"

    @property
    def variables(self) -> dict[str, str]:
        return self.bucket.server.variables

    def files(self) -> dict[str, bytes]:
        return self.bucket.objects(f"{self.prefix}/")

    def put(self, path: str, body: bytes) -> None:
        self.bucket.put(f"{self.prefix}/{path}", body)

    def remove(self, path: str) -> None:
        self.bucket.remove(f"{self.prefix}/{path}")


def exported(made: TransferPipeline, place: ExportPlace, *more: str) -> Answer:
    """Exports the newest checkpoint."""
    return silenced(made.tidemark("export", "market", "--to", place.at, *more, **place.variables))


def imported(other: TransferPipeline, place: ExportPlace, *more: str) -> Answer:
    """Imports it, as `bazaar`; a dry run without `--execute`."""
    return silenced(other.tidemark("import", place.at, "--as", "bazaar", *more, **place.variables))


def silenced(answer: Answer) -> Answer:
    """The same, where nothing in it is a secret."""
    for secret in SECRETS:
        assert secret not in answer.out + answer.err
    return answer
