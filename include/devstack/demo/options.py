"""The demo's options from the environment: `DEMO=quick` and `WAREHOUSE=s3`."""

import os

from tidemark.errors import UsageError


def asks_for(variable: str, value: str) -> bool:
    """Returns whether a variable has its only allowed value.

    Raises:
        UsageError: the variable has another value.
    """
    found = os.environ.get(variable, "")
    if found not in ("", value):
        raise UsageError(f"{variable}={found}", next=f"unset it, or make demo {variable}={value}.")
    return found == value
