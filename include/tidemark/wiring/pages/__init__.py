"""What the pages in Airflow show, and the REST interface below `/tidemark` answers (K1–K8): reads only.

JSON values under Flink's field names wherever the meaning is Flink's; the rest is ours. Manifests are the truth, so
the answers are the same when Airflow's database was lost.
"""

from tidemark.wiring.pages.outlooks import Outlooks

__all__ = ["Pages"]


class Pages(Outlooks):
    """The answers; one per process, because it remembers what it has read."""
