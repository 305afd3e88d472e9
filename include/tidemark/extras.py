"""The optional packages: which extra of Tidemark installs each one, and the error if it is not installed."""

from importlib.util import find_spec

from tidemark.errors import UsageError

EXTRAS = {
    "airflow": "airflow",
    "boto3": "s3",
    "botocore": "s3",
    "confluent_kafka": "kafka",
    "delta": "spark",
    "deltalake": "read",
    "duckdb": "read",
    "great_expectations": "gate",
    "grpc": "spark",
    "numpy": "read",
    "openlineage": "openlineage",
    "pandas": "read",
    "psycopg": "postgres",
    "pyarrow": "read",
    "pyroaring": "spark",
    "pyspark": "spark",
    "rich": "cli",
    "typer": "cli",
}
"""Module to extra."""


def require(*modules: str) -> None:
    """Checks that optional packages are installed, without importing them.

    Raises:
        UsageError: one is not; the message names the extra to install.
    """
    for module in modules:
        if find_spec(module) is None:
            raise missing_package(module)


def missing_package(module: str) -> UsageError:
    """Returns the error for an optional package that is not installed."""
    extra = EXTRAS[module]
    return UsageError(
        f"the package {module} is not installed",
        safe="nothing was read or written.",
        next=f"pip install 'tidemark[{extra}]'",
    )


def as_missing(error: ModuleNotFoundError) -> UsageError | None:
    """Returns the error for an import that failed; None if the module is not an optional package of Tidemark."""
    top = (error.name or "").partition(".")[0]
    return missing_package(top) if top in EXTRAS else None
