"""The watch over the trips; its notifier writes down what it gets, where a test names a file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tests.airflow.pipelines.trips import trips
from tidemark.airflow import watch_dag


def note(facts: Mapping[str, object]) -> None:
    """A notifier that fails where its file cannot be written."""
    with Path(os.environ["TIDEMARK_TEST_NOTES"]).open("a") as notes:
        notes.write(json.dumps(facts) + "\n")


dag = watch_dag([trips], on_late=note)
