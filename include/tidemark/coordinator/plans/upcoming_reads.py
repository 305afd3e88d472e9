"""What a plan reads in most cases, so that it can be read at the same time where a round trip is long (adr/0068).

A wrong guess costs a request, or a round trip: whatever is not named here is read when it is needed.
"""

from tidemark.coordinator.records.timelines import Head
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import owner_of

Upcoming = tuple[list[str], list[str]]
"""Keys, and folders to list."""


def read_before_id(pipeline: Pipeline, head: Head) -> Upcoming:
    """Returns the reads between a head and the put of the next plan's id."""
    compacted = [f"compactions/{uid}/" for uid in pipeline.schemas()]
    if isinstance(head.entry, Checkpoint):
        rows = [
            *(ack.dead_letters for ack in head.entry.sealed.acks),
            *(table.handle for table in head.entry.sinks.values()),
        ]
        compacted += [f"compactions/{owner_of(segment.path)}/" for handle in rows for segment in handle]
    return [keys.plan_key(head.next_slot), keys.stop_key(1)], ["stops/", *compacted, "ids/"]


def read_behind_id(draft: CheckpointPlan, requests_seen: int) -> Upcoming:
    """Returns the reads between the id of a plan and the put of the plan.

    Args:
        draft: the plan before it takes up redrives and names erasures.
        requests_seen: number of the newest request for a redrive that its parent has seen.
    """
    texts = [keys.query_key(name) for named in draft.queries.values() for name in named.values()]
    return [keys.redrive_key(requests_seen + 1), keys.erasure_key(1), *texts], ["erasures/"]
