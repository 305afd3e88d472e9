"""Assets and the page of a pipeline with several sources and broadcast states."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from tidemark import Broadcast, DeltaTable, Fold, KafkaSource, Pipeline, TopicPattern, state

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@dataclass(frozen=True)
class Sale:
    """A record."""

    item: str
    at: datetime


class Sold(state.Keyed):
    """What is remembered."""

    n: int = state.count()


SHOP = Pipeline(
    name="shop",
    sources={
        "sales": KafkaSource(("tills", "web"), Sale, event_time="at"),
        "returns": KafkaSource(TopicPattern("returns-.*"), Sale),
    },
    operators=[
        Fold("sold", key_by="item", state=Sold, input="sales"),
        Fold("returned", key_by="item", state=Sold, input="returns"),
    ],
    broadcast=[
        Broadcast("rules", KafkaSource("rules", Sale), key_by="item"),
        Broadcast("owners", DeltaTable("/owners", Sale), key_by="item"),
    ],
)


def test_the_assets_name_every_topic_and_every_state(airflow_home: Path) -> None:
    from tidemark.airflow.assets import assets_of

    found = assets_of(SHOP, "broker:9092")
    assert [a.name for a in found.topics] == ["topic tills", "topic web", "topic returns-.*", "topic rules"]
    assert [a.name for a in found.states] == [f"shop/state/{uid}" for uid in ("rules", "owners", "sold", "returned")]
    assert len({a.uri for a in (*found.topics, *found.states, *found.dead_letters)}) == 12


def test_the_page_tells_each_source_and_each_broadcast_state(airflow_home: Path) -> None:
    from tidemark.airflow.dag_docs import explain

    page = explain(SHOP, "on demand", is_cut=False, retention=None)
    assert "`tills`, `web`, `returns-.*`, `rules`" in page
    assert "| event time | `sales`: `at`, `returns`: the Kafka timestamp |" in page
    assert "| `rules` (broadcast) | `rules` | `item` | `at` |" in page
    assert "| `owners` (broadcast) | `/owners` | `item` | `at` |" in page
    assert "| `returned` | `returns` | `item` | `n` (count) |" in page
