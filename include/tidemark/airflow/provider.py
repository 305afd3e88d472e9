"""Describes Tidemark to Airflow as a provider; entry point `apache_airflow_provider`. It imports nothing."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Returns what `airflow providers list` shows; the plugin has an entry point of its own."""
    return {
        "package-name": "tidemark",
        "name": "Tidemark",
        "description": "Incremental, restorable checkpoints of keyed state: Kafka, Spark and Delta under Airflow.",
    }
