"""Runs the demo: the stack, the input, the months, the correction, the comparison, retention, and a table.

Run it with `python -m devstack.demo`. You can repeat it: it keeps existing results and adds missing ones. The stack
keeps running at the end, so that you can look around. `DEMO=quick` runs half a year without the correction;
`WAREHOUSE=s3` keeps all data in a bucket.
"""

import os
import sys
import time

from devstack import control
from devstack.credentials import ADMIN
from devstack.demo import bucket
from devstack.demo.options import asks_for
from devstack.demo.releases import Releases
from devstack.demo.story import PIPELINE, Story, is_whole
from devstack.demo.summary import Line, lines_of, table_of
from devstack.demo.topic import DataSet, load
from devstack.demo_stack import airflow_login, ended_service, stop_other_airflow
from tidemark.cli.airflow_api import AirflowApi
from tidemark.cli.output import complain, note, show_rows
from tidemark.cli.timeline import plain_tree
from tidemark.context import Context, open_context
from tidemark.errors import TidemarkError
from tidemark.operations import reads, timelines
from tidemark.settings import Settings, load_settings

VARIABLE, QUICK = "DEMO", "quick"
FOLDERS = "TIDEMARK_PIPELINES"


def main() -> int:
    """Runs the demo; the exit code is 0 if every row agrees."""
    began = time.monotonic()
    try:
        if asks_for(bucket.VARIABLE, bucket.S3):
            os.environ |= bucket.variables(load_settings())
            note(f"tidemark down, with TIDEMARK_HOME={os.environ['TIDEMARK_HOME']}, stops this demo and its bucket")
        demonstrate(load_settings(), quick=asks_for(VARIABLE, QUICK))
    except TidemarkError as error:
        complain(error)
        return error.code
    except KeyboardInterrupt:
        note("interrupted\nSafe: every completed checkpoint is intact.\nNext: make demo again, or tidemark down.")
        return 130
    note(f"\nthe demo took {time.monotonic() - began:.0f} s; tidemark down stops the stack")
    return 0


def demonstrate(settings: Settings, *, quick: bool) -> None:
    """Starts the stack, loads the data, makes checkpoints, corrects the bug, checks the rows, and prints the result.

    Args:
        settings: the project's settings.
        quick: run half a year, without the correction.

    Raises:
        TidemarkError: a step failed, or rows differ.
    """
    context, releases = open_context(settings), Releases(settings)
    _head("the stack")
    _start(settings, releases, deploys=not quick and not is_whole(lines_of(context, PIPELINE)))
    _head("the input")
    for data_set in (DataSet.AIRLINES, DataSet.PLANES, DataSet.FLIGHTS):
        load(data_set)
    before = _ids(context)
    login = airflow_login(settings)
    api = AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password)
    story = Story(api=api, context=context, releases=releases, dead=lambda: ended_service(settings), head=_head)
    story.begin()
    if quick:
        story.half_year()
    else:
        story.year()
    added = len(_ids(context)) - len(before)
    note(f"{added} checkpoints were added" if added else "no checkpoint was added: every month is covered already")
    _head("every row, recomputed from the data set")
    story.check()
    if not quick:
        story.let_go()
    _head("checkpoints")
    _show(context, lines_of(context, PIPELINE))
    if quick:
        note(
            f"{VARIABLE}={QUICK} skipped July to December, the savepoint, the bug, its correction by a backfill, and"
            " retention: make demo adds them"
        )
    sys.stdout.write(f"\nAirflow  {settings.airflow_address}/dags/{PIPELINE}\n")
    sys.stdout.write(f"login    {ADMIN} / {login.airflow_admin_password}\n")


def _start(settings: Settings, releases: Releases, *, deploys: bool) -> None:
    """Starts the services that do not run.

    Args:
        settings: the project's settings.
        releases: the release that Airflow's tasks run.
        deploys: whether another release will be deployed; an Airflow that would not see it is restarted.
    """
    if deploys:
        stop_other_airflow(settings, {FOLDERS: os.pathsep.join(map(str, releases.deployed.pipelines))})
    control.up(releases.deployed, report=note)


def _show(context: Context, lines: list[Line]) -> None:
    show_rows(table_of(lines, reads.list_released(context, PIPELINE)), as_json=False)
    if len(lines) > 1:
        sys.stdout.write("\n")
        sys.stdout.writelines(f"{line}\n" for line in plain_tree(timelines.list_timelines(context, PIPELINE)))


def _ids(context: Context) -> set[int]:
    return {found.id for line in lines_of(context, PIPELINE) for found in line.checkpoints}


def _head(title: str) -> None:
    note(f"\n== {title}")


if __name__ == "__main__":
    sys.exit(main())
