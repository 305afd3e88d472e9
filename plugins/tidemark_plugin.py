"""Registers Tidemark's pages with Airflow where Tidemark is only on the path; an installed one does so by itself.

Airflow reports an error if a plugin of one name is registered twice.
"""

from importlib.metadata import entry_points

if not any(entry.name == "tidemark" for entry in entry_points(group="airflow.plugins")):
    from tidemark.airflow.ui.plugin import TidemarkPlugin as TidemarkPlugin
