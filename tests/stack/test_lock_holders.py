"""The process that holds a timeline's lock, as the second demo looks for it before it kills it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devstack.weather.weather_checking import PIPELINE
from devstack.weather.weather_story import WeatherStory
from tidemark.cli.airflow_api import AirflowApi
from tidemark.context import open_context
from tidemark.settings import STACK_VARIABLE, load_settings

PARENT = """
import subprocess, sys
bare = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={})
print(bare.pid, flush=True)
bare.wait()
"""


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_task_whose_title_covers_its_environment_belongs_to_the_stack_of_its_parent(
    is_ours: bool, tmp_path: Path
) -> None:
    settings = load_settings(root=str(tmp_path), home=str(tmp_path / "home"), warehouse=str(tmp_path / "warehouse"))
    story = WeatherStory(
        api=AirflowApi("http://127.0.0.1:1", "nobody", "none"),
        context=open_context(settings),
        dead=lambda: None,
        head=print,
    )
    env = {name: value for name, value in os.environ.items() if name != STACK_VARIABLE}
    env[STACK_VARIABLE] = str(settings.home if is_ours else tmp_path / "other")
    with subprocess.Popen([sys.executable, "-c", PARENT], env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        bare = int(parent.stdout.readline())
        try:
            lock = tmp_path / "warehouse" / PIPELINE / "locks" / "t1.lock"
            lock.parent.mkdir(parents=True)
            lock.write_text(f"{bare} 1795912893881")
            assert story._holder() == (bare if is_ours else None)
        finally:
            os.kill(bare, signal.SIGKILL)
    assert story._holder() is None
