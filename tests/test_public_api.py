"""The names that authors may import, and the packages that importing them must not load."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidemark

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("pyspark", "airflow", "great_expectations", "boto3", "deltalake", "duckdb", "openlineage", "pandas", "pyarrow")
PIPELINES = sorted(p.stem for p in (ROOT / "include/pipelines").glob("*.py") if p.stem != "__init__")

PROBE = """
import json, sys
known = set(sys.modules)
{imports}
print(json.dumps(sorted(set(sys.modules) - known)))
"""


def _loaded_by(imports: str, home: Path) -> set[str]:
    """The names that `imports` adds to `sys.modules` in a new interpreter."""
    path = os.pathsep.join([str(ROOT / "include"), str(ROOT / "dags")])
    env = os.environ | {"PYTHONPATH": path, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    probe = PROBE.format(imports=imports)
    done = subprocess.run([sys.executable, "-c", probe], env=env, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def _heavy(loaded: set[str]) -> list[str]:
    return sorted({name.split(".")[0] for name in loaded} & set(HEAVY))


def test_the_public_names_are_sorted_and_few() -> None:
    assert tidemark.__all__ == sorted(tidemark.__all__)
    assert len(set(tidemark.__all__)) == len(tidemark.__all__) <= 28
    assert dir(tidemark) == tidemark.__all__


@pytest.mark.parametrize("name", tidemark.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(tidemark, name).__doc__


@pytest.mark.parametrize("name", tidemark.__all__)
def test_the_type_checker_sees_every_public_name(name: str) -> None:
    tree = ast.parse((ROOT / "include/tidemark/__init__.py").read_text())
    guarded = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    seen = {alias.name for n in guarded.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    assert name in seen, f"add {name} to the TYPE_CHECKING block of tidemark/__init__.py"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Folt'"):
        _ = tidemark.Folt


def test_importing_the_package_and_its_names_loads_nothing_heavy(tmp_path: Path) -> None:
    names = "".join(f"tidemark.{name}\n" for name in tidemark.__all__)
    assert _heavy(_loaded_by(f"import tidemark\n{names}", tmp_path)) == []


def test_importing_the_package_alone_loads_none_of_its_own_modules(tmp_path: Path) -> None:
    assert [m for m in _loaded_by("import tidemark", tmp_path) if m.startswith("tidemark.")] == []


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_importing_a_pipeline_loads_nothing_heavy(pipeline: str, tmp_path: Path) -> None:
    assert _heavy(_loaded_by(f"import pipelines.{pipeline}", tmp_path)) == []
