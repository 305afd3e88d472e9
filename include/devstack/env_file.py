"""Creates the secrets for docker-compose.yaml in `.env`, each only once. `make env` runs this file.

It needs only the standard library, because you do not need a virtual environment to run containers. It keeps secrets
that are already set.
"""

import base64
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

SECRETS: Mapping[str, Callable[[], str]] = {
    "POSTGRES_PASSWORD": lambda: secrets.token_urlsafe(24),
    "AIRFLOW_ADMIN_PASSWORD": lambda: secrets.token_urlsafe(18),
    "AIRFLOW_SECRET_KEY": lambda: secrets.token_urlsafe(32),
    "AIRFLOW_JWT_SECRET": lambda: secrets.token_urlsafe(64),
    "AIRFLOW_FERNET_KEY": lambda: base64.urlsafe_b64encode(os.urandom(32)).decode(),
    "OBJECT_STORE_ACCESS_KEY": lambda: secrets.token_hex(10),
    "OBJECT_STORE_SECRET_KEY": lambda: secrets.token_urlsafe(30),
}
"""Variable → function that creates it, from characters that need no escaping in URLs and JSON."""


def complete(path: Path) -> list[str]:
    """Adds missing secrets to a file, and makes it readable only for its owner.

    Args:
        path: the file; it is created if it does not exist.

    Returns:
        The names of the added secrets.
    """
    lines = path.read_text().splitlines() if path.is_file() else []
    known = {name.strip() for name, _, value in (line.partition("=") for line in lines) if value.strip()}
    missing = [name for name in SECRETS if name not in known]
    if missing:
        kept = [line for line in lines if line.partition("=")[0].strip() not in missing]
        whole = "".join(f"{line}\n" for line in [*kept, *(f"{name}={SECRETS[name]()}" for name in missing)])
        partial = path.with_name(f"{path.name}.partial")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.write(whole)
        partial.replace(path)
    path.chmod(0o600)
    return missing


def main() -> int:
    """Completes the file; prints the names of the created secrets, never their values."""
    path = Path(sys.argv[1])
    made = complete(path)
    print(f"{path}: created {', '.join(made)}" if made else f"{path}: all secrets exist", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
