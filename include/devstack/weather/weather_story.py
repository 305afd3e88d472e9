"""The weather demo's story: four quarters, an attempt that is killed, a restore, and a comparison of every row."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import psutil

from devstack.demo.checking import MismatchError, interval_of
from devstack.demo.dag_runs import POLL, Dag
from devstack.demo.native import Backfill
from devstack.demo.summary import NEW_YORK, lines_of
from devstack.weather.weather_checking import PIPELINE, WeatherChecker
from tidemark.cli.airflow_api import AirflowApi
from tidemark.cli.output import note
from tidemark.context import Context
from tidemark.coordinator.records.states import OpenPlan
from tidemark.errors import TidemarkError
from tidemark.settings import STACK_VARIABLE

QUARTERS = tuple(datetime(2013, month, 1, tzinfo=NEW_YORK) for month in (1, 4, 7, 10))
KILLED, RESTORED = 3, 2
"""The quarter whose first attempt is killed, and the one that the restore goes back to."""
PATIENCE = 300.0
LOOK_EVERY = 0.05


@dataclass(kw_only=True)
class WeatherStory:
    """The demo, from the running stack to the comparison.

    Attributes:
        api: a session of Airflow's REST API.
        context: the context for reading the store.
        dead: returns a service that has ended, or None.
        head: prints a heading.
    """

    api: AirflowApi
    context: Context
    dead: Callable[[], str | None]
    head: Callable[[str], None]
    _said: set[tuple[str, str]] = field(default_factory=set)

    def run(self) -> None:
        """Makes the checkpoints that are missing.

        Raises:
            TidemarkError: a DAG run failed.
        """
        Dag(api=self.api, id=PIPELINE).pause(False)
        if self._done < RESTORED:
            self.head("January to June: two DAG runs")
            self._quarters(RESTORED)
        if self._done < KILLED and not self._is_restored:
            self.head("July to September: the first attempt is killed")
            native = self._native(KILLED)
            number = native.start()
            self._kill()
            native.wait(number)
        if not self._is_restored:
            self.head("a restore to the end of June")
            self._restore()
        self.head("July to December again: one DAG run reads both quarters")
        self._quarters(len(QUARTERS))

    def check(self) -> None:
        """Compares all rows of the checkpoints of both timelines.

        Raises:
            MismatchError: rows differ; the message lists them.
        """
        checker, wrong, seen = WeatherChecker(context=self.context, say=note), list[str](), set[int]()
        for line in lines_of(self.context, PIPELINE):
            for checkpoint in line.checkpoints:
                if checkpoint.id not in seen:
                    seen.add(checkpoint.id)
                    wrong += checker.check(checkpoint, interval_of(checkpoint)[1])
        if wrong:
            raise MismatchError(
                "\n".join([*wrong, "the state differs from the data set"]),
                safe="the comparison changed nothing.",
                next="this is a bug in Tidemark: report it, with the rows above.",
            )

    @property
    def _done(self) -> int:
        return len(lines_of(self.context, PIPELINE)[-1].checkpoints)

    @property
    def _is_restored(self) -> bool:
        return len(lines_of(self.context, PIPELINE)) > 1

    def _native(self, quarters: int) -> Backfill:
        first, last = QUARTERS[0], QUARTERS[quarters - 1]
        return Backfill(
            api=self.api, dag=PIPELINE, first=first, last=last, runs=quarters, dead=self.dead, said=self._said
        )

    def _quarters(self, count: int) -> None:
        native = self._native(count)
        if native.done(native.dag_runs()) == native.runs:
            note(f"all {native.runs} DAG runs have already succeeded")
            return
        native.wait(native.start())

    def _kill(self) -> None:
        """Kills the process that works on the first attempt of the next checkpoint."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self.context.coordinator(PIPELINE).open_plan()
            holder = self._holder() if isinstance(found, OpenPlan) and found.attempt else None
            if isinstance(found, OpenPlan) and holder is not None:
                break
            self._refuse_endless(deadline, "no attempt began")
            time.sleep(LOOK_EVERY)
        os.kill(holder, signal.SIGKILL)
        note(f"{found.plan.name}: attempt {found.attempt}, in process {holder}, was killed; Airflow tries again")

    def _holder(self) -> int | None:
        """Returns the task's process that holds the lock of the live timeline; a killed one leaves its number there.

        A worker of Airflow writes its title over its environment, so its parents say whose it is.
        """
        lock = self.context.warehouse.local_folder / PIPELINE / "locks" / "t1.lock"
        words = lock.read_text().split() if lock.exists() else []
        if not words or not words[0].isdecimal():
            return None
        home = str(self.context.settings.home)
        try:
            process = psutil.Process(int(words[0]))
            is_ours = any(one.environ().get(STACK_VARIABLE) == home for one in (process, *process.parents()))
        except psutil.Error:
            return None
        return process.pid if is_ours else None

    def _restore(self) -> None:
        """Restores the checkpoint of the end of June with the DAG `restore`."""
        target = lines_of(self.context, PIPELINE)[-1].checkpoints[RESTORED - 1]
        dag = Dag(api=self.api, id="restore")
        run = dag.trigger({"pipeline": PIPELINE, "checkpoint": target.plan.name, "execute": True})
        note(f"restore: {dag.page(run)}")
        deadline = time.monotonic() + PATIENCE
        while not dag.succeeded(run):
            self._refuse_endless(deadline, "the restore did not end")
            time.sleep(POLL)
        line = lines_of(self.context, PIPELINE)[-1]
        note(f"timeline {line.timeline} begins at {target.plan.name}; its records of July are read again")

    def _refuse_endless(self, deadline: float, what: str) -> None:
        gone = self.dead()
        if gone or time.monotonic() > deadline:
            raise TidemarkError(
                f"{gone} has ended" if gone else f"{what} within {PATIENCE:.0f} s",
                safe="completed checkpoints are intact; running DAG runs continue.",
                next=f"tidemark logs {gone or 'airflow-scheduler'}; then make demo-weather again.",
            )
