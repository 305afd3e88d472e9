"""The packages of the image: all that the product needs, and none that only development needs."""

import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devstack import bootstrap
from tests.support.compose import ROOT

IMAGE = (ROOT / "requirements.image").read_text().split()


def _needed(wanted: list[str]) -> set[str]:
    """Every package that requirements lead to on this machine, from the metadata of what is installed."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        found.add(name)
        for extra in ("", *one.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                below = [Requirement(text) for text in requires(name) or []]
            except PackageNotFoundError:
                continue
            waiting += [r for r in below if r.marker is None or r.marker.evaluate({"extra": extra})]
    return found - {"tidemark"}


def test_the_image_has_all_that_the_product_needs() -> None:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = ",".join(whole["project"]["optional-dependencies"])
    needed = _needed([f"tidemark[{extras}]", *whole["dependency-groups"]["image"]])
    assert len(needed) > 100
    assert needed - set(IMAGE) == set()


@pytest.mark.parametrize("name", ["pytest", "mypy", "moto", "ruff", "hypothesis", "pre-commit", "flask"])
def test_the_image_has_nothing_that_only_development_needs(name: str) -> None:
    assert name not in IMAGE


def test_the_part_of_the_lock_has_every_version_and_hash_of_its_packages(tmp_path: Path) -> None:
    part = bootstrap._image_lock(tmp_path).read_text()
    lock = (ROOT / "requirements.lock").read_text()
    locked = [line for line in lock.splitlines() if "==" in line and line.partition("==")[0] in IMAGE]
    assert [line for line in part.splitlines() if "==" in line] == locked
    assert {line.partition("==")[0] for line in locked} == set(IMAGE)
    assert part.count("--hash") < lock.count("--hash")
    assert all(bootstrap.locked_block(part, name) == bootstrap.locked_block(lock, name) for name in IMAGE)
