"""Registers Tidemark's pages with Airflow. All else is in `tidemark_ui`, which `.airflowignore` hides from the scan."""

from tidemark_ui.plugin import TidemarkPlugin

__all__ = ["TidemarkPlugin"]
