"""The graph of a checkpoint leads from a broadcast state to the folds that join it."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.trips import settings_of
from tidemark import Broadcast, Fold, KafkaSource, Pipeline, state
from tidemark.model.core.offsets import TopicPartition
from tidemark.operations import reads
from tidemark.web import graphs


@dataclass(frozen=True)
class Sale:
    """A record."""

    shop: str
    cents: int


@dataclass(frozen=True)
class Shop:
    """A row to look up."""

    shop: str
    city: str


class Sold(state.Keyed):
    """The state of one key."""

    cents: int = state.sum("cents")


SALES = Pipeline(
    name="sales",
    source=KafkaSource("sales", Sale),
    operators=[
        Fold("cities", join={"shops": "shop"}, key_by="shops.city", state=Sold),
        Fold("plain", key_by="shop", state=Sold),
    ],
    broadcast=[Broadcast("shops", KafkaSource("shops", Shop), key_by="shop")],
)


class JoinsContext(DiskContext):
    """Finds the declaration in the pipeline on disk."""

    def pipeline(self, name: str) -> Pipeline:
        return self.line.pipeline


def test_the_graph_leads_from_a_broadcast_state_to_the_folds_that_join_it(tmp_path: Path) -> None:
    line = DiskPipeline(tmp_path / "warehouse", SALES, "sales", partitions=1)
    line.log.create("shops", 1)
    line.log.append(TopicPartition("shops", 0), json.dumps({"shop": "a", "city": "Ulm"}).encode(), timestamp_ms=0)
    line.send([(0, json.dumps({"shop": "a", "cents": 5}).encode(), 1)])
    line.checkpoint()
    context = JoinsContext(line, settings_of(tmp_path))
    assert reads.read_state(context, "sales", "cities").to_pylist()[0]["city"] == "Ulm"
    graph = graphs.build_graph(context, "sales", 1)
    edges = {(edge.begin, edge.end) for edge in graph.edges if edge.begin == "operator shops"}
    assert edges == {("operator shops", "operator cities"), ("operator shops", "state shops")}
    (cities,) = (node for node in graph.nodes if node.id == "operator cities")
    assert cities.facts["joins shops by"] == "shop"
