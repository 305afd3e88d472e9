"""Forms whose DAGs write states of a fork: the conf, the answers and the fields that a transform and a patch share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param
from pydantic import AwareDatetime, Field

from tidemark.airflow.checkpoint_tasks import Ids, open_tidemark
from tidemark.airflow.form_answers import RARE, PipelinesOperator, text_field
from tidemark.airflow.form_dags import BeginningConf
from tidemark.model.core.savepoint_expiry import expiry_ms

if TYPE_CHECKING:
    from tidemark.operations.savepoint_states.patch import Patched
    from tidemark.operations.savepoint_states.transform import Transformed


class StatesConf(BeginningConf):
    """The `conf` of a DAG run that writes states.

    Attributes:
        source: the savepoint that is read, or a checkpoint such as `chk-17`.
        at: when new and changed keys were last accessed; None = as late as the source allows.
        note, expires: the new savepoint's note and expiry.
        execute: write the states; otherwise only plan them and show the plan.
    """

    source: str
    at: AwareDatetime | None = None
    note: str | None = None
    expires: str | None = None
    execute: bool = Field(False, strict=True)

    def shared_arguments(self, owner: str) -> dict[str, Any]:
        """Returns the arguments that every request has.

        Raises:
            UsageError: the expiry cannot be parsed.
        """
        from tidemark.operations.savepoint_states.patch import source_of

        return {
            "pipeline": self.pipeline,
            "source": source_of(self.source, force=self.force, allow_non_restored_state=self.allow_non_restored_state),
            "at": self.at,
            "owner": owner,
            "note": self.note or "",
            "expires_at_ms": expiry_ms(self.expires, open_tidemark().clock.now_ms()) if self.expires else None,
        }


class StatesOperator(PipelinesOperator):
    """A task that plans states, or writes them."""

    def describe(self, done: "Transformed | Patched", states: Mapping[str, Mapping[str, Any]]) -> Ids:
        """Logs the counts of each state, and returns them with the names."""
        for uid, counts in states.items():
            self.log.info("%s: %s", uid, ", ".join(f"{name} {n}" for name, n in counts.items()))
        names = {"savepoint": done.savepoint, "timeline": done.timeline, "from": done.source.plan.name}
        found: Ids = {**names, "states": states}
        return found if done.checkpoint is None else found | {"checkpoint": done.checkpoint.plan.name}

    def suggest_diff(self, pipeline: str, uid: str, result: Ids) -> None:
        """Logs the command that compares a state with the one before."""
        ends = f"--from {result['from']} --to {result['checkpoint']}"
        self.log.info("compare: tidemark state diff %s %s %s --values", pipeline, uid, ends)


def source_field() -> Param:
    """Returns the form's field `source`."""
    return Param("", type="string", title="From", description="A savepoint, or a checkpoint such as chk-17.")


def savepoint_fields() -> dict[str, Param]:
    """Returns the form's fields `note` and `expires`."""
    return {
        "note": text_field("Note", "A note for people."),
        "expires": text_field("Expires", "30d, 12h, or a time such as 2030-01-31T00:00Z. Empty: never.", section=RARE),
    }
