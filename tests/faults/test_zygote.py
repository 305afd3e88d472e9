"""The process that forks for the tests tells each command's own end."""

import os
from pathlib import Path

import pytest

from tests.support.processes import Zygote

pytestmark = pytest.mark.slow


def test_of_two_commands_with_one_pid_each_has_its_own_code(tmp_path: Path) -> None:
    """Pids come round within minutes where many processes and threads start."""
    with Zygote(tmp_path) as zygote:
        zygote._codes |= dict.fromkeys(range(1, int(Path("/proc/sys/kernel/pid_max").read_text())), 77)
        done = zygote.start(["--help"], os.environ).wait()
    assert done.returncode == 0, done
