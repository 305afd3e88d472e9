"""Names of datasets in OpenLineage, and the facets of their columns: `schema`, and `columnLineage`.

Only the datasets of an event have names in a catalogue, so steps between operators are joined to one: from the columns
of a written table to the fields of the records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from openlineage.client.facet_v2 import DatasetFacet, column_lineage_dataset, schema_dataset

from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.columns.column_graph import OUTPUT, ROWS, SOURCE, STATE, ColumnGraph, ColumnRef, Influence
from tidemark.model.columns.column_graph import ReachedColumn as Reached
from tidemark.model.columns.column_lineage import draw_columns
from tidemark.model.core.names import S3Url, is_url

PRODUCER = "urn:tidemark:0"
STATE_TABLE, DEAD_LETTERS = "state", "dead letters"
"""Kinds of tables, in addition to those of sinks."""
_POSSIBLY = "possibly: a function lies between the two that does not declare its fields"


class DatasetName(NamedTuple):
    """The namespace and the name of a dataset."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The names of jobs and datasets, by OpenLineage's naming rules.

    Attributes:
        jobs: namespace of the jobs; a pipeline is a job.
        broker: `host:port` of the first Kafka server; topics are `kafka://host:port`, name.
        warehouse: absolute path, and tables are `file`, path; or `s3://BUCKET/FOLDER`: then `s3://BUCKET`, path.
    """

    jobs: str
    broker: str
    warehouse: str

    def topic(self, name: str) -> DatasetName:
        """Returns a topic."""
        return DatasetName(f"kafka://{self.broker}", name)

    def table(self, path: str) -> DatasetName:
        """Returns a Delta table by its path relative to the warehouse."""
        if is_url(self.warehouse):
            place = S3Url.parsed(self.warehouse)
            return DatasetName(f"s3://{place.bucket}", f"{place.prefix}/{path}")
        return DatasetName("file", f"{self.warehouse}/{path}")

    @staticmethod
    def foreign_table(place: str) -> DatasetName:
        """Returns a Delta table outside the warehouse by its absolute path or its URL."""
        if not is_url(place):
            return DatasetName("file", place)
        scheme, _, rest = place.partition("://")
        bucket, _, path = rest.partition("/")
        return DatasetName(f"{scheme}://{bucket}", path)


@dataclass(frozen=True)
class PlannedColumns:
    """The columns of the records that a plan reads and of the tables that it writes.

    Attributes:
        plan: the plan.
        naming: names of datasets.
    """

    plan: CheckpointPlan
    naming: Naming

    @cached_property
    def _graph(self) -> ColumnGraph | None:
        """The columns of the declaration that the plan records; None if it records none."""
        return None if self.plan.columns is None else draw_columns(self.plan.schemas, self.plan.columns)

    def read_facets(self, topic: str) -> dict[str, DatasetFacet]:
        """Returns the fields of a topic's records; nothing if the plan does not record them."""
        declared = {} if self.plan.columns is None else self.plan.columns.sources
        for name, topics in self.plan.sources.items():
            if topic in topics and name in declared:
                return {"schema": _schema((field, None) for field in declared[name].fields)}
        return {}

    def written_facets(self, kind: str, uid: str) -> dict[str, DatasetFacet]:
        """Returns the facets of a table or topic by its kind and the uid of its operator or output."""
        if kind == DEAD_LETTERS:
            return {}
        if kind == STATE_TABLE:
            schema = self.plan.schemas[uid]
            rows = ColumnRef(STATE, uid, ROWS)
            types = {key.name: key.type.sql for key in schema.keys}
            types |= {column: of.sql for field in schema.fields for column, of in field.columns}
            made = {key.name: key.name for key in schema.keys}
            made |= {column: field.name for field in schema.fields for column, _ in field.columns}
        else:
            rows = ColumnRef(OUTPUT, uid, ROWS)
            types = dict(self.plan.sinks[uid].columns)
            made = {name: name for name in types}
        found: dict[str, DatasetFacet] = {"schema": _schema(types.items())}
        if self._graph is not None:
            found["columnLineage"] = lineage_facet(self._graph, rows, made, self._datasets)
        return found

    def _datasets(self, source: str) -> Sequence[DatasetName]:
        """The topics of a source, or the table that a broadcast state copies."""
        declared = self.plan.columns
        table = "" if declared is None or source not in declared.sources else declared.sources[source].table
        if table:
            return [self.naming.foreign_table(table)]
        return [self.naming.topic(topic) for topic in self.plan.sources.get(source, ())]


def lineage_facet(
    graph: ColumnGraph, rows: ColumnRef, columns: Mapping[str, str], datasets: Callable[[str], Sequence[DatasetName]]
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    """Returns the facet `columnLineage` of a written table: the input fields that make each column, or decide it.

    Args:
        graph: the columns of the pipeline.
        rows: the node for the rows of the state or the output that is written.
        columns: for each column of the table the column of that state or output which it holds.
        datasets: returns the names of the datasets of a source.
    """
    of_rows = graph.upstream(rows)
    decided = {(reached.column, influence) for reached in of_rows for influence in reached.influences}

    def own(reached: Reached) -> list[Influence]:
        return [influence for influence in reached.influences if (reached.column, influence) not in decided]

    found = {name: graph.upstream(ColumnRef(rows.kind, rows.dataset, name)) for name in dict.fromkeys(columns.values())}
    fields = {
        column: column_lineage_dataset.Fields(
            inputFields=[f for reached in found[name] for f in _input_fields(reached, own(reached), datasets)]
        )
        for column, name in columns.items()
    }
    shared = [f for reached in of_rows for f in _input_fields(reached, reached.influences, datasets)]
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields, dataset=shared or None, producer=PRODUCER)


def _input_fields(
    reached: Reached, influences: Iterable[Influence], datasets: Callable[[str], Sequence[DatasetName]]
) -> Iterator[column_lineage_dataset.InputField]:
    transformations = [
        column_lineage_dataset.Transformation(
            type=influence.type,
            subtype=influence.subtype,
            description=_POSSIBLY if influence.is_opaque else None,
            masking=False,
        )
        for influence in influences
    ]
    if reached.column.kind == SOURCE and transformations:
        for namespace, name in datasets(reached.column.dataset):
            yield column_lineage_dataset.InputField(namespace, name, reached.column.name, transformations)


def _schema(columns: Iterable[tuple[str, str | None]]) -> schema_dataset.SchemaDatasetFacet:
    fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=of, fields=None) for name, of in columns]
    return schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER)
