"""The demo's story: half a year, a savepoint, a bug that stays unnoticed for three months, and its correction."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from devstack.demo.checking import Checker, MismatchError, upto
from devstack.demo.correction import SAVEPOINT, Correction
from devstack.demo.dag_runs import POLL, Dag
from devstack.demo.native import Backfill, Say
from devstack.demo.releases import Releases
from devstack.demo.retention import LettingGo
from devstack.demo.summary import NEW_YORK, Line, lines_of
from tidemark.cli.airflow_api import AirflowApi, Json
from tidemark.cli.backfill import difference_row
from tidemark.cli.output import note, show_rows
from tidemark.context import Context
from tidemark.errors import NotFoundError, TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import reads, savepoints
from tidemark.operations.backfill import describe_differences

T = TypeVar("T")
PIPELINE, COMPACTION = "flights", "flights_compact"
YEAR, HALF, MONTHS = 2013, 6, 12
NOTICED = 9
"""The month at whose end the bug is noticed."""
PATIENCE = 600.0


@dataclass(kw_only=True)
class Story:
    """The demo, from the running stack to the comparison of all rows.

    Attributes:
        api: a session of Airflow's REST API.
        context: the context for reading the store, with the code in your checkout.
        releases: the releases that Airflow's tasks run.
        dead: returns a service that has ended, or None.
        head: prints a heading.
        checked: names of timelines that were compared completely.
    """

    api: AirflowApi
    context: Context
    releases: Releases
    dead: Callable[[], str | None]
    head: Callable[[str], None]
    checked: set[str] = field(default_factory=set)

    @cached_property
    def correction(self) -> Correction:
        """The correction: the savepoint and the backfill."""
        return Correction(api=self.api, context=self.context, pipeline=PIPELINE)

    def begin(self) -> None:
        """Unpauses the DAGs, and deploys the correct release first."""
        Dag(api=self.api, id=COMPACTION).pause(False)
        Dag(api=self.api, id=PIPELINE).pause(False)
        if len(self._live().checkpoints) < HALF:
            self.releases.deploy_right()

    def half_year(self) -> None:
        """Runs January to June as a native Airflow backfill, which skips months that have succeeded."""
        self.head("January to June: six DAG runs")
        self._months(HALF)

    def year(self) -> None:
        """Runs one native backfill of twelve months, paused at the end of June for a savepoint and a release.

        Raises:
            TidemarkError: a DAG run failed, or rows differ before the fork is promoted.
        """
        if len(self._live().checkpoints) < HALF:
            self.head("January to June: six DAG runs of a backfill that has twelve")
            self._to_the_end_of_june()
        self._second_half()

    def let_go(self) -> None:
        """Runs retention with the rule of the DAG file, and compares June, which only its savepoint keeps, again.

        Raises:
            TidemarkError: the DAG run failed, or the state of June has changed.
        """
        self.head("retention: the rule of dags/flights.py releases old checkpoints")
        june = self._june()
        before = None if june is None else self._checker.hashes(june)
        if not LettingGo(api=self.api, context=self.context, pipeline=PIPELINE).run(self._await):
            return
        if june is not None and before is not None:
            self._refuse_changed(june, before, "retention")
            self._checker.check(upto(self._live().checkpoints, june), [june])

    def _second_half(self) -> None:
        """Runs July to December with the bug and its correction; skips steps that are already done."""
        done = len(self._live().checkpoints)
        if self._is_promoted() or (done > HALF and not self.correction.has_savepoint):
            self.head("July to December: six DAG runs")
            self.releases.deploy_right()
            self._months(MONTHS)
            if not self._is_promoted():
                note(
                    "the bug and its correction are skipped, because this home already had more than half a year."
                    " To see them, set TIDEMARK_HOME to an empty folder"
                )
            return
        self._save_and_break(done)
        self._correct()

    def check(self) -> None:
        """Compares all rows of three checkpoints of every timeline that was live, each timeline only once.

        Checkpoints that retention has released have no rows left to compare.

        Raises:
            MismatchError: rows or totals differ.
        """
        lines = lines_of(self.context, PIPELINE)
        if not lines[-1].checkpoints:
            raise NotFoundError(
                f"no checkpoint of {PIPELINE} was made for a month",
                next="the demo needs a separate warehouse: set TIDEMARK_HOME to an empty folder, then make demo.",
            )
        gone = reads.list_released(self.context, PIPELINE)
        for line in lines:
            there = [found for found in line.checkpoints if found.plan.name not in gone]
            own = [found for found in there if found in line.own]
            if there and line.timeline not in self.checked:
                self._checker.check(upto(line.checkpoints, there[-1]), three_of(own or there))

    def _save_and_break(self, done: int) -> None:
        self.head("a savepoint, and a release with a bug")
        june = self._live().checkpoints[HALF - 1]
        Dag(api=self.api, id="savepoint").pause(False)
        self.correction.save(june, self._await)
        if done < NOTICED and not self.correction.begun:
            for line in self.releases.deploy_wrong():
                note(line)
            note(
                "deployed: a missing departure delay is an error now, so every cancelled flight becomes a dead letter;"
                " they are fewer than 5 %, so no run fails"
            )

    def _correct(self) -> None:
        self.head("July to December: six DAG runs; in October the bug is fixed, and a backfill runs at the same time")
        native = self._year
        # If the demo was killed, Airflow may have continued without it, to the end.
        number = None if native.done(native.dag_runs()) == native.runs else native.start()
        native.wait(number, lambda runs, say: native.done(runs) >= NOTICED)
        self.releases.deploy_right()
        note(f"deployed: {PIPELINE}.py as before, and as in your checkout")
        run = self.correction.trigger()

        def over(runs: list[Json], say: Say) -> bool:
            return self.correction.asks(run, say) and native.done(runs) == native.runs

        native.wait(number, over)
        self._approve(run)

    def _approve(self, run: str) -> None:
        """Shows the result of the backfill, checks the rows, promotes the fork, and checks the old rows again."""
        if self._is_promoted():
            return
        self.head("the fork compared with the live timeline, as Airflow shows it when it asks for approval")
        found = describe_differences(self.correction.differences())
        show_rows([difference_row(one) for one in found], as_json=False)
        note(
            "changed: keys whose fields differ; total: how much more the fork has, because it has the cancelled flights"
        )
        self.head("every row before the promote, recomputed from the data set")
        old = self._live()
        self._checker.check(old.checkpoints, three_of(old.checkpoints))
        before = self._checker.hashes(old.checkpoints[-1])
        self.head("approved: the fork catches up and becomes live")
        self.correction.approve(run)
        self._await(lambda: self.correction.succeeded(run, note))
        note(f"timeline {self._live().timeline} is live; {old.timeline} has ended and stays readable")
        self._refuse_changed(old.checkpoints[-1], before, "the promote")
        self.checked.add(old.timeline)

    def _refuse_changed(self, checkpoint: Checkpoint, before: dict[str, str], since: str) -> None:
        after = self._checker.hashes(checkpoint)
        if after != before:
            raise MismatchError(
                f"the state of {checkpoint.plan.name} was {before}, and is {after} since {since}",
                safe="the comparison changed nothing.",
                next="this is a bug in Tidemark: report it.",
            )
        where = checkpoint.plan.slot.timeline
        note(f"{checkpoint.plan.name} of timeline {where} has the same hashes as before {since}: {_short(after)}")

    @cached_property
    def _checker(self) -> Checker:
        wrong = self.releases.wrong
        return Checker(context=self.context, pipeline=PIPELINE, wrong=None if wrong is None else wrong.fingerprint)

    def _to_the_end_of_june(self) -> None:
        native = self._year
        number = native.start()
        native.wait(number, lambda runs, say: runs[HALF - 1]["state"] in ("running", "success"))
        native.hold(number)
        native.wait(number, lambda runs, say: not any(run["state"] == "running" for run in runs))

    @cached_property
    def _year(self) -> Backfill:
        """The backfill of the twelve months, which remembers its reports."""
        return self._native(MONTHS)

    def _months(self, last: int) -> None:
        native = self._year if last == MONTHS else self._native(last)
        if native.done(native.dag_runs()) == native.runs:
            note(f"all {native.runs} DAG runs have already succeeded")
            return
        native.wait(native.start())

    def _native(self, last: int) -> Backfill:
        begin, end = (datetime(YEAR, month, 1, tzinfo=NEW_YORK) for month in (1, last))
        return Backfill(api=self.api, dag=PIPELINE, first=begin, last=end, runs=last, dead=self.dead)

    def _june(self) -> Checkpoint | None:
        """Returns the checkpoint that the savepoint pins."""
        pinned = savepoints.open_savepoints(self.context, PIPELINE).find(SAVEPOINT)
        return None if pinned is None else reads.get_checkpoint(self.context, PIPELINE, pinned.checkpoint)

    def _live(self) -> Line:
        return lines_of(self.context, PIPELINE)[-1]

    def _is_promoted(self) -> bool:
        return len(lines_of(self.context, PIPELINE)) > 1

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            gone = self.dead()
            if gone or time.monotonic() > deadline:
                raise TidemarkError(
                    f"{gone} has ended" if gone else f"a DAG run did not end within {PATIENCE:.0f} s",
                    safe="completed checkpoints are intact; running DAG runs continue.",
                    next=f"tidemark logs {gone or 'airflow-scheduler'}; then make demo again.",
                )
            time.sleep(POLL)


def is_whole(lines: Sequence[Line]) -> bool:
    """Returns whether the year is complete and corrected."""
    return len(lines) > 1 and len(lines[-1].checkpoints) >= MONTHS


def three_of(found: Sequence[T]) -> list[T]:
    """Returns the first, the last and one between them."""
    last = len(found) - 1
    return [found[place] for place in sorted({0, last // 2, last})]


def _short(hashes: dict[str, str]) -> str:
    return ", ".join(f"{uid} {text[:8]}" for uid, text in hashes.items())
