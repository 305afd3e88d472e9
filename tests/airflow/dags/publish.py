"""Publishes the trips' buses; each test declares the path of the mirror."""

from dataclasses import replace

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import publication_dag
from tidemark.targets import DeltaMirror

(buses,) = trips.operators
dag = publication_dag(replace(trips, operators=[replace(buses, publish=[DeltaMirror("/lake/buses")])]))
