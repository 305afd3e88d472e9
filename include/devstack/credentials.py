"""Secrets of the embedded Airflow: made at the first `up`, kept in one file that only its owner may read (I8)."""

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
    """What `<home>/secrets.json` holds; never printed, except the password to the person who asked for the login."""

    airflow_admin_password: str = field(repr=False)
    airflow_jwt_secret: str = field(repr=False)
    airflow_secret_key: str = field(repr=False)
    airflow_fernet_key: str = field(repr=False)


def secrets_path(home: Path) -> Path:
    """The 0600 file of a home."""
    return home / "secrets.json"


def load_credentials(home: Path) -> Credentials | None:
    """The secrets of a home, or None before its first `up`."""
    path = secrets_path(home)
    return Credentials(**json.loads(path.read_text())) if path.is_file() else None


def ensure_credentials(home: Path) -> Credentials:
    """The secrets of a home, made when there are none; the file's mode is put right either way."""
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
