"""Secrets of the embedded Airflow: created by the first `up`, in one file that only its owner may read."""

import base64
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

from devstack.processes import write_whole

ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The contents of `<home>/secrets.json`. They are never printed, except for the password when the demo ends."""

    airflow_admin_password: str = field(repr=False)
    airflow_jwt_secret: str = field(repr=False)
    airflow_secret_key: str = field(repr=False)
    airflow_fernet_key: str = field(repr=False)


def secrets_path(home: Path) -> Path:
    """Return the path of a home's secrets, a file with mode 0600."""
    return home / "secrets.json"


def load_credentials(home: Path) -> Credentials | None:
    """Return the secrets of a home, or None before its first `up`."""
    path = secrets_path(home)
    return Credentials(**json.loads(path.read_text())) if path.is_file() else None


def ensure_credentials(home: Path) -> Credentials:
    """Return the secrets of a home, and create them if there are none; corrects the file's mode in either case."""
    known = load_credentials(home)
    if known is None:
        known = Credentials(
            airflow_admin_password=secrets.token_urlsafe(18),
            airflow_jwt_secret=secrets.token_urlsafe(64),
            airflow_secret_key=secrets.token_urlsafe(32),
            airflow_fernet_key=base64.urlsafe_b64encode(os.urandom(32)).decode(),
        )
        write_whole(secrets_path(home), json.dumps(asdict(known), indent=2) + "\n", mode=0o600)
    secrets_path(home).chmod(0o600)
    return known
