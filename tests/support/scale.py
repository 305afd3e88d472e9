"""How many cases a random test tries; `make test-nightly` tries several times as many."""

import os

SCALE = int(os.environ.get("TIDEMARK_TEST_SCALE", "1"))


def cases(usual: int) -> int:
    """The cases of this run, of a test that usually tries so many."""
    return usual * SCALE
