"""Two more pipelines over the trips' topic, for DAGs of several pipelines."""

from dataclasses import replace

# The module, not the value: a file declares every pipeline that it has a name for.
from tests.airflow.pipelines import trips as base

trams = replace(base.trips, name="trams")
trains = replace(base.trips, name="trains")
