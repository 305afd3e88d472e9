"""Prepares `AIRFLOW_HOME` if each component of Airflow is a container: `python -m devstack.airflow_home`.

The environment variable `AIRFLOW_ADMIN_PASSWORD` holds the password, because a command line is visible to all users.
"""

import os
import sys
from pathlib import Path

from devstack.airflow_services import write_home


def main() -> int:
    """Writes the files that Airflow reads from its home, next to its database."""
    write_home(Path(os.environ["AIRFLOW_HOME"]), os.environ["AIRFLOW_ADMIN_PASSWORD"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
