"""The assets of a pipeline: its topics, the state and dead letters of every operator, checkpoints and savepoints.

Declared from the pipeline alone, so that every DAG that names one names the same one, and no parse makes a new version
of a DAG: an address that varies (the embedded broker's port) never reaches a URI.
"""

from dataclasses import dataclass
from urllib.parse import quote

from airflow.sdk import Asset

from tidemark.declare.operators import Process
from tidemark.declare.pipeline import Pipeline
from tidemark.declare.sources import KafkaSource, TopicPattern
from tidemark.model.checkpoint.openlineage_events import EMBEDDED_BROKER

GROUP = "tidemark"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAssets:
    """What the lineage graph shows of one pipeline.

    Attributes:
        topics: what is read from Kafka, broadcast topics included.
        states: see `state_assets`.
        dead_letters: in the same order.
        sinks: tables that operators emit to, committed with the checkpoint.
        sent: topics that are sent to after the manifest.
        sent_ahead: topics that attempts send to, before the seal.
        checkpoint: see `checkpoint_asset`.
    """

    topics: tuple[Asset, ...]
    states: tuple[Asset, ...]
    dead_letters: tuple[Asset, ...]
    sinks: tuple[Asset, ...]
    sent: tuple[Asset, ...]
    sent_ahead: tuple[Asset, ...]
    checkpoint: Asset

    @property
    def changed(self) -> list[Asset]:
        """What a checkpoint changes below the warehouse."""
        return [*self.states, *self.dead_letters, *self.sinks]


def assets_of(pipeline: Pipeline, broker: str | None = None) -> PipelineAssets:
    """All that a run of checkpoints touches. Airflow loads every provider's URI handlers for a topic.

    Args:
        pipeline: the declaration.
        broker: `host:port`; None = the first server that is set, else `EMBEDDED_BROKER`.
    """
    address = broker or _set_broker() or EMBEDDED_BROKER
    topics = [name for source in pipeline.inputs.values() for name in topic_names(source)]
    sinks = [o.sink for o in pipeline.operators if isinstance(o, Process) and o.sink is not None]
    sent = [(sink.kafka_topic, sink.traits.keeps_rows) for sink in sinks if sink.kafka_topic is not None]
    return PipelineAssets(
        topics=tuple(_topic(address, name) for name in topics),
        states=state_assets(pipeline),
        dead_letters=_of_each(pipeline, "dead_letters"),
        sinks=tuple(_own(pipeline.name, "sinks", s.name) for s in sinks if s.traits.is_transactional),
        sent=tuple(_topic(address, topic) for topic, is_kept in sent if is_kept),
        sent_ahead=tuple(_topic(address, topic) for topic, is_kept in sent if not is_kept),
        checkpoint=checkpoint_asset(pipeline),
    )


def checkpoint_asset(pipeline: Pipeline) -> Asset:
    """Gets an event, with the facts and the partition key `chk-N`, for every completed checkpoint."""
    return _own(pipeline.name, "checkpoint")


def savepoint_asset(pipeline: Pipeline) -> Asset:
    """Gets an event, with the name as partition key, for every savepoint that a DAG makes."""
    return _own(pipeline.name, "savepoint")


def retention_asset(pipeline: Pipeline) -> Asset:
    """Gets an event, with counts and bytes, for every sweep."""
    return _own(pipeline.name, "retention")


def late_asset(pipeline: Pipeline) -> Asset:
    """Gets an event, with age and deadline, whenever `watch_dag` finds the pipeline late."""
    return _own(pipeline.name, "late")


def state_assets(pipeline: Pipeline) -> tuple[Asset, ...]:
    """State per uid, in declaration order, broadcast states first."""
    return _of_each(pipeline, "state")


def topic_names(source: KafkaSource) -> list[str]:
    """The topics of a source, sorted; a pattern stands for itself, because what it matches is known to Kafka only."""
    return [source.topics.regex] if isinstance(source.topics, TopicPattern) else sorted(source.names)


def _set_broker() -> str | None:
    from tidemark.settings import load_settings

    servers = load_settings().kafka_bootstrap
    return servers.split(",")[0].strip() if servers else None


def _topic(address: str, name: str) -> Asset:
    uri = f"kafka://{address}/{quote(name, safe='')}"
    return Asset(name=f"topic {name}", uri=uri, group=GROUP)


def _of_each(pipeline: Pipeline, kind: str) -> tuple[Asset, ...]:
    return tuple(_own(pipeline.name, kind, uid) for uid in pipeline.schemas())


def _own(*parts: str) -> Asset:
    path = "/".join(parts)
    return Asset(name=path, uri=f"x-tidemark://{path}", group=GROUP)
