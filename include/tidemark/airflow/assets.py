"""The assets of a pipeline: its topics, the state and dead letters of every operator, checkpoints and savepoints.

Assets depend on the pipeline's declaration alone, so every DAG names the same ones, and parsing never makes a new DAG
version: an address that varies, such as the embedded broker's port, is never part of a URI.
"""

from dataclasses import dataclass
from urllib.parse import quote

from airflow.sdk import Asset

from tidemark.declare.pipeline import Pipeline
from tidemark.declare.sources import KafkaSource, TopicPattern
from tidemark.model.core.names import EMBEDDED_BROKER, checked_name
from tidemark.model.schema.operator_schema import with_state

GROUP = "tidemark"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAssets:
    """The assets of one pipeline in the lineage graph.

    Attributes:
        topics: topics that it reads, broadcast topics included.
        states: see `state_assets`.
        dead_letters: tables of dead letters, in the same order.
        sinks: tables that operators emit to, committed with the checkpoint.
        sent: topics that receive records after the manifest is published.
        sent_ahead: topics that receive records during an attempt, before the seal.
        checkpoint: see `checkpoint_asset`.
        completed: see `checkpoints_of`.
    """

    topics: tuple[Asset, ...]
    states: tuple[Asset, ...]
    dead_letters: tuple[Asset, ...]
    sinks: tuple[Asset, ...]
    sent: tuple[Asset, ...]
    sent_ahead: tuple[Asset, ...]
    checkpoint: Asset
    completed: Asset

    @property
    def changed(self) -> list[Asset]:
        """The assets in the warehouse that a checkpoint changes."""
        return [*self.states, *self.dead_letters, *self.sinks]


def assets_of(pipeline: Pipeline, broker: str | None = None) -> PipelineAssets:
    """Returns all assets that checkpoints read or write. For a topic, Airflow loads every provider's URI handlers.

    Args:
        pipeline: the declaration.
        broker: `host:port`; None = the first configured server, or `EMBEDDED_BROKER`.
    """
    address = broker or _set_broker() or EMBEDDED_BROKER
    topics = [name for source in pipeline.inputs.values() for name in topic_names(source)]
    sinks = [output.sink for output in pipeline.outputs.values() if output.sink is not None]
    sent = [(sink.kafka_topic, sink.traits.keeps_rows) for sink in sinks if sink.kafka_topic is not None]
    return PipelineAssets(
        topics=tuple(_topic(address, name) for name in topics),
        states=state_assets(pipeline),
        dead_letters=tuple(_own(pipeline.name, "dead_letters", uid) for uid in pipeline.schemas()),
        sinks=tuple(_own(pipeline.name, "sinks", s.name) for s in sinks if s.traits.is_transactional),
        sent=tuple(_topic(address, topic) for topic, is_kept in sent if is_kept),
        sent_ahead=tuple(_topic(address, topic) for topic, is_kept in sent if not is_kept),
        checkpoint=checkpoint_asset(pipeline),
        completed=checkpoints_of(pipeline),
    )


def checkpoints_of(pipeline: Pipeline | str) -> Asset:
    """Returns the asset that starts a DAG after the checkpoints of a pipeline: `schedule=checkpoints_of("orders")`.

    Each DAG run that completes checkpoints adds one event to it, without a partition key, because Airflow passes events
    with a key to partitioned timetables only. If several events arrive before the DAG can run, they start one run.

    Args:
        pipeline: the declaration, or the pipeline's name.

    Raises:
        NameRefusedError: the text cannot be the name of a pipeline.
    """
    name = pipeline if isinstance(pipeline, str) else pipeline.name
    return _own(checked_name("pipeline", name), "completed")


def checkpoint_asset(pipeline: Pipeline) -> Asset:
    """The asset with an event for each completed checkpoint: its facts, and the partition key `chk-N`."""
    return _own(pipeline.name, "checkpoint")


def savepoint_asset(pipeline: Pipeline) -> Asset:
    """The asset with an event for each savepoint that a DAG creates, with its name as the partition key."""
    return _own(pipeline.name, "savepoint")


def retention_asset(pipeline: Pipeline) -> Asset:
    """The asset with an event for each sweep, with its counts and bytes."""
    return _own(pipeline.name, "retention")


def publication_asset(pipeline: Pipeline, name: str) -> Asset:
    """The asset with an event for each step of a publication: the checkpoint that its target has."""
    return _own(pipeline.name, "publication", name)


def late_asset(pipeline: Pipeline) -> Asset:
    """The asset with an event each time `watch_dag` finds the pipeline late, with age and deadline."""
    return _own(pipeline.name, "late")


def state_assets(pipeline: Pipeline) -> tuple[Asset, ...]:
    """Returns one asset per uid that keeps state, in declaration order, broadcast states first."""
    return tuple(_own(pipeline.name, "state", uid) for uid in with_state(pipeline.schemas()))


def topic_names(source: KafkaSource) -> list[str]:
    """Returns a source's topics, sorted; a pattern stays a pattern, because only Kafka knows the matching topics."""
    return [source.topics.regex] if isinstance(source.topics, TopicPattern) else sorted(source.names)


def _set_broker() -> str | None:
    from tidemark.settings import load_settings

    servers = load_settings().kafka_bootstrap
    return servers.split(",")[0].strip() if servers else None


def _topic(address: str, name: str) -> Asset:
    uri = f"kafka://{address}/{quote(name, safe='')}"
    return Asset(name=f"topic {name}", uri=uri, group=GROUP)


def _own(*parts: str) -> Asset:
    path = "/".join(parts)
    return Asset(name=path, uri=f"x-tidemark://{path}", group=GROUP)
