"""Prepares `AIRFLOW_HOME` where each component of Airflow is a container: `python -m devstack.airflow_home`.

The password comes by environment (`AIRFLOW_ADMIN_PASSWORD`), as a command line is no place for it.
"""

import os
import sys
from pathlib import Path

from devstack.airflow_services import write_home


def main() -> int:
    """Writes what Airflow reads from its home beside its database."""
    write_home(Path(os.environ["AIRFLOW_HOME"]), os.environ["AIRFLOW_ADMIN_PASSWORD"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
