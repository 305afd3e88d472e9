"""What the environment asks of the demo: `DEMO=quick`, `WAREHOUSE=s3`."""

import os

from tidemark.errors import UsageError


def asks_for(variable: str, value: str) -> bool:
    """Whether a variable holds the one value that it may hold.

    Raises:
        UsageError: it holds another one.
    """
    found = os.environ.get(variable, "")
    if found not in ("", value):
        raise UsageError(f"{variable}={found}", next=f"leave it out, or make demo {variable}={value}.")
    return found == value
