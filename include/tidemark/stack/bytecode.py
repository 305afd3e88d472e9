"""Bytecode of the packages that every process imports, written once, at set-up. Standard library only.

Python writes it by itself at the first import of a module, but not where PYTHONDONTWRITEBYTECODE is set, as in most
images of containers. There each of many processes would compile the same modules anew: 2 s of processor time for
Airflow, 5 s for a gate. What lies outside of the environment, our own sources too, stays as it is.
"""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

FORBIDDEN = "PYTHONDONTWRITEBYTECODE"
IMPORTED = (
    "airflow.__main__",
    "airflow.api_fastapi.app",
    "airflow.api_fastapi.core_api.routes.public",
    "airflow.api_fastapi.core_api.routes.ui",
    "airflow.api_fastapi.execution_api.routes",
    "airflow.cli.commands.api_server_command",
    "airflow.cli.commands.dag_processor_command",
    "airflow.cli.commands.db_command",
    "airflow.cli.commands.scheduler_command",
    "airflow.cli.commands.standalone_command",
    "airflow.dag_processing.processor",
    "airflow.executors.local_executor",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "alembic.command",
    "boto3",
    "confluent_kafka.admin",
    "deltalake",
    "duckdb",
    "great_expectations.expectations.core",
    "hypothesis",
    "pandas",
    "pyarrow.parquet",
    "pyspark.sql.connect.session",
    "pytest",
    "tidemark.airflow",
    "tidemark.cli.main",
    "tidemark.engine.job",
    "tidemark.wiring",
)
"""What services, tasks, commands and tests begin with. One that cannot be imported is left out: it only costs time."""
_PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        pass
"""


def write(venv: Path, variables: Mapping[str, str], modules: tuple[str, ...] = IMPORTED) -> int:
    """Writes the bytecode of what some modules import, of all that lies in a virtual environment.

    Args:
        venv: the environment.
        variables: of this process; where they do not forbid bytecode nothing is done, because Python does it by itself.
        modules: what to import.

    Returns:
        How many files were written.
    """
    if not variables.get(FORBIDDEN):
        return 0
    with tempfile.TemporaryDirectory(dir=venv, prefix="bytecode-") as folder:
        aside = {"PYTHONPYCACHEPREFIX": f"{folder}/made", "AIRFLOW_HOME": f"{folder}/airflow"}
        environment = {k: v for k, v in variables.items() if k != FORBIDDEN} | aside
        command = [str(venv / "bin" / "python"), "-c", _PROBE, *modules]
        subprocess.run(command, env=environment, cwd=folder, capture_output=True, check=False)
        made = Path(folder, "made", *venv.absolute().parts[1:])
        return sum(_moved(path, venv / path.relative_to(made)) for path in made.rglob("*.pyc"))


def _moved(path: Path, beside: Path) -> bool:
    """Puts a file of bytecode where Python looks for it; whole, however many write at once."""
    cache = beside.parent / "__pycache__"
    cache.mkdir(exist_ok=True)
    os.replace(path, cache / path.name)
    return True
