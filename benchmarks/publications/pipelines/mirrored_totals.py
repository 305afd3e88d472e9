"""Two pipelines over each topic: one publishes nothing, the other one declares two mirrors of its state."""

import os

from benchmarks.peers.pipelines.totals import Changed
from benchmarks.pipelines import Update
from benchmarks.publications.mirroring import EACH, LAKE, MIRRORED, PLAIN, TENTH, TOPICS
from tidemark import Fold, KafkaSource, Pipeline
from tidemark.targets import DeltaMirror


def _pipeline(name: str, topic: str, mirrors: tuple[str, ...]) -> Pipeline:
    folder = f"{os.environ[LAKE]}/{topic}"
    declared = [DeltaMirror(f"{folder}/{mirror}", name=mirror) for mirror in mirrors]
    return Pipeline(
        name=name,
        source=KafkaSource(topic, Update, event_time="at"),
        operators=[Fold("totals", key_by="key", state=Changed, deletes=True, publish=declared)],
    )


EVERY = [
    _pipeline(f"{topic}-{kind}", topic, mirrors)
    for topic in TOPICS
    for kind, mirrors in ((PLAIN, ()), (MIRRORED, (EACH, TENTH)))
]
globals().update({f"totals_{n}": pipeline for n, pipeline in enumerate(EVERY)})
