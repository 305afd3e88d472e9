"""Publishes the trips' buses; each test declares the path of the mirror."""

from dataclasses import replace

from tests.airflow.pipelines.trips import trips
from tidemark import Fold
from tidemark.airflow import publication_dag
from tidemark.targets import DeltaMirror

(buses,) = trips.operators
assert isinstance(buses, Fold)
dag = publication_dag(replace(trips, operators=[replace(buses, publish=[DeltaMirror("/lake/buses")])]))
