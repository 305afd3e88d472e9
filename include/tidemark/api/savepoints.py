"""The savepoints of a pipeline: names that pin completed checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark.api.dry_run import DryRun
from tidemark.api.lookups import At, add_advice, find_id
from tidemark.context import Context
from tidemark.environment import random_id, user_name
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.core.savepoint_expiry import expiry_ms
from tidemark.model.retention.savepoint import SavepointChange, SavepointRecord, SavepointRequest
from tidemark.operations import retention
from tidemark.operations import savepoints as operations

_LIST = ".savepoints.list() lists them."


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint as it was when you asked.

    Attributes:
        record: all of it, as `tidemark.model` has it. Its fields may change between releases.
        facts: the same as JSON values, with size and logical time of the checkpoint: `tidemark savepoint show --json`.

    >>> winter = w["flights"].savepoints.get("winter")
    >>> winter.name, winter.checkpoint, winter.timeline, winter.note, winter.owner
    ('winter', 'chk-2', 't1', 'January and February', 'ops')
    >>> winter.facts["expires_at"], winter.facts["logical_time"]
    (None, '2013-03-01T00:00:00Z')
    """

    record: SavepointRecord
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name, which is never used for another one."""
        return self.record.name

    @property
    def checkpoint(self) -> str:
        """The checkpoint that it pins: `chk-17`."""
        return self.record.checkpoint_name

    @property
    def timeline(self) -> str:
        """The timeline of that checkpoint."""
        return self.record.timeline

    @property
    def note(self) -> str:
        """Its purpose."""
        return self.record.note

    @property
    def owner(self) -> str:
        """The person who answers for it."""
        return self.record.owner

    @property
    def disposed(self) -> bool:
        """Whether it pins nothing any more."""
        return self.record.disposed

    def to_dict(self) -> dict[str, Any]:
        """All facts, as JSON values."""
        return dict(self.facts)

    def __repr__(self) -> str:
        return f"<savepoint {self.name}: {'disposed' if self.disposed else f'pins {self.checkpoint}'}>"


@dataclass(frozen=True, slots=True)
class PipelineSavepoints:
    """`.savepoints` of a pipeline. No verb here needs Kafka, Spark or the pipeline's file.

    >>> for savepoint in w["flights"].savepoints.list():
    ...     print(savepoint)
    <savepoint winter: pins chk-2>
    """

    context: Context
    pipeline: str

    def list(self, *, disposed: bool = False) -> list[Savepoint]:
        """All savepoints, oldest first.

        Args:
            disposed: also those that pin nothing any more.
        """
        found = operations.open_savepoints(self.context, self.pipeline).list(disposed=disposed)
        return [self._described(record) for record in found]

    def get(self, name: str) -> Savepoint:
        """One savepoint, also one that is disposed.

        Raises:
            NotFoundError: no savepoint ever had the name.
        """
        found = operations.open_savepoints(self.context, self.pipeline).find(name)
        if found is None:
            raise NotFoundError(f"{self.pipeline} has no savepoint {name!r}", next=_LIST)
        return self._described(found)

    def create(
        self,
        name: str,
        at: At | None = None,
        *,
        note: str = "",
        expires: str | datetime | None = None,
        owner: str | None = None,
    ) -> Savepoint:
        """Pins a completed checkpoint under a name, at once. Nothing is copied.

        Args:
            name: a name that was never used for another savepoint of the pipeline.
            at: which checkpoint; the newest one of the live timeline without it.
            note: its purpose.
            expires: a span such as `"30d"` or `"12h"`, or a time; it never expires without it.
            owner: the person who answers for it; the user of this process without it.

        Raises:
            NotFoundError: no such checkpoint, or no checkpoint yet; or retention has released it.
            ConflictError: the name is taken, or the checkpoint is about to be deleted.
            UsageError: `expires` is no expiry, or is over already.

        >>> w["flights"].savepoints.create("june", note="before the upgrade")
        <savepoint june: pins chk-3>
        >>> w["flights"].savepoints.create("june")
        Traceback (most recent call last):
            ...
        tidemark.errors.ConflictError: savepoint june pins chk-3
        Safe: it is unchanged.
        Next: use another name.
        """
        request = SavepointRequest(
            name=name,
            owner=owner or user_name(),
            origin=f"python {random_id()}",
            checkpoint=find_id(self.context, self.pipeline, at),
            note=note,
            expires_at_ms=self._expiry(expires),
        )
        return self._described(operations.open_savepoints(self.context, self.pipeline).create(request))

    def change(self, name: str, *, note: str | None = None, expires: str | datetime | None = None) -> Savepoint:
        """Changes the note, the expiry, or both. The name and the checkpoint never change.

        Args:
            name: the savepoint.
            note: the new note; the old one stays without it.
            expires: as in `create`, or `"never"`; the old expiry stays without it.

        Raises:
            NotFoundError: no such savepoint, or it is disposed.
            ConflictError: another process changed it at the same moment.

        >>> w["flights"].savepoints.change("winter", note="audited").note
        'audited'
        """
        wanted = SavepointChange(note=note, expires_at_ms=self._expiry(expires), moves_expiry=expires is not None)
        with add_advice(_LIST):
            return self._described(operations.open_savepoints(self.context, self.pipeline).change(name, wanted))

    def dispose(self, name: str) -> DryRun:
        """Plans the end of a savepoint: it pins nothing any more. Retention deletes files, not this verb.

        Returns:
            A dry run; `plan["needed_by"]` says what would refuse it.

        Raises:
            NotFoundError: no such savepoint, or it is disposed.

        `commit()` raises ConflictError if a timeline, a stop, a legal hold or a running plan needs the savepoint.

        >>> w["flights"].savepoints.dispose("winter").commit()
        {'name': 'winter', 'checkpoint': 'chk-2', 'also_pinned_by': [], 'disposed': True}
        >>> w["flights"].savepoints.get("winter")
        <savepoint winter: disposed>
        """
        opened = operations.open_savepoints(self.context, self.pipeline)
        with add_advice(_LIST):
            needed_by = list(opened.needed_by(name))
        facts = operations.describe_disposal(self.context, self.pipeline, name)

        def execute() -> dict[str, Any]:
            disposed = opened.dispose(name).disposed
            return {**operations.describe_disposal(self.context, self.pipeline, name), "disposed": disposed}

        return DryRun("dispose", {**facts, "disposed": False, "needed_by": needed_by}, execute)

    def hold(self, name: str, *, why: str, owner: str | None = None) -> None:
        """Puts a legal hold on a savepoint, at once: it cannot be disposed of and does not expire.

        Args:
            name: the savepoint.
            why: the case, or the person who asked for it.
            owner: the person who answers for it; the user of this process without it.

        Raises:
            NotFoundError: no such savepoint, or it is disposed.
            ConflictError: it is being disposed of, or another process changed the hold.
        """
        with add_advice(_LIST):
            retention.open_holds(self.context, self.pipeline).hold(name, why=why, owner=owner or user_name())

    def release(self, name: str) -> None:
        """Ends the legal hold on a savepoint, at once. The savepoint stays.

        Raises:
            NotFoundError: no hold is on it.
            ConflictError: another process changed the hold.
        """
        with add_advice(_LIST):
            retention.open_holds(self.context, self.pipeline).release(name)

    def _expiry(self, expires: str | datetime | None) -> int | None:
        if expires is None:
            return None
        text = expires.isoformat() if isinstance(expires, datetime) else expires
        return expiry_ms(text, self.context.clock.now_ms())

    def _described(self, record: SavepointRecord) -> Savepoint:
        return Savepoint(record, body_of(operations.describe_savepoint(self.context, self.pipeline, record)))
