"""The page of `benchmarks.airflow_latency`: percentiles, phases and CPU, per pipeline and number of records."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Groups = Mapping[tuple[str, int], Sequence[Row]]
GATES = {"timed": "without a gate", "gated": "with a gate"}
TARGETS = {("timed", 10_000): 6.0, ("gated", 10_000): 10.0}
"""Target medians of `completed`, in seconds (issue 8, scenario j)."""
METHOD = """\
DAG runs of four tasks are triggered by REST on the warm embedded stack, one after another. `completed` is the moment
when the manifest is published, `ended` the moment when Airflow marks the run as successful. The pipelines compute a
count, a sum and a maximum per key."""
PHASES = """\
Medians of seconds; their sum is about the time to the run's end. A phase ends with this event. `accept`: Airflow has
answered the trigger. `queued`: the scheduler has begun the run. Per task, `schedule`: the scheduler has found the task
and given it to its executor; `start`: the task's process has reported its start; `prepare`: the DAG file is parsed;
`work`: the task has done its work; `report`: Airflow has its state. `end`: the scheduler has closed the run."""
CPU = """\
Medians of seconds of CPU that each process used during a run. `tasks` are the processes of the four tasks, `executor`
the workers that start and watch them. Other work on the machine affects these figures less than the times above."""


def page(data: str, facts: Row, rows: Sequence[Row]) -> str:
    """Renders the page as Markdown.

    Args:
        data: the name of the file with the figures.
        facts: the machine, the versions and the command of the run.
        rows: one per DAG run; rounds below zero warm up the stack.
    """
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row["round"] >= 0:
            groups.setdefault((row["pipeline"], row["records"]), []).append(row)
    loads = [row["load"] for row in rows if row["round"] >= 0]
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    return "\n".join(
        [
            "# From a trigger to a completed checkpoint, through Airflow",
            "",
            f"Made by `{facts['command']}` (seed {facts['seed']}, {facts['cores']} cores, Python {facts['python']},",
            f"{versions}); data: [{data}]({data}). The load of the machine before a run was {min(loads)} to",
            f"{max(loads)}: above about 1, other work has lengthened the times.",
            "",
            *METHOD.splitlines(),
            f"Every run read all records; all {sum(facts['checked_keys'].values()):,} final keys equal numpy's.",
            "",
            *_times(groups),
            "",
            "## Phases",
            "",
            *PHASES.splitlines(),
            "",
            *_table("phase", groups, "phases"),
            "",
            "## Steps of the engine, within the work of `fold`",
            "",
            *_table("step", groups, "steps"),
            "",
            "## CPU",
            "",
            *CPU.splitlines(),
            "",
            *_table("process", groups, "cpu", total=True),
            "",
            "[Benchmarks](README.md#where-the-time-of-a-dag-run-went) lists the attempts to make it shorter.",
            "",
        ]
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by at least this share of all values (nearest rank)."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _times(groups: Groups) -> list[str]:
    lines = [
        "| records | pipeline | runs | completed, p50 s | p95 s | ended, p50 s | p95 s | target, p50 s |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (pipeline, records), rows in groups.items():
        cells = [
            f"{percentile([r[name] for r in rows], share):.2f}"
            for name in ("completed", "ended")
            for share in (0.5, 0.95)
        ]
        wanted = TARGETS.get((pipeline, records))
        lines.append(
            f"| {records:,} | {GATES[pipeline]} | {len(rows)} | {' | '.join(cells)} | "
            f"{'–' if wanted is None else f'≤ {wanted:.0f}'} |"
        )
    return lines


def _table(first: str, groups: Groups, part: str, *, total: bool = False) -> list[str]:
    """A table of medians: one row per named part, one column per case; a part that a run lacks counts as 0."""
    names = list(dict.fromkeys(name for rows in groups.values() for row in rows for name in row[part]))
    heads = [f"{records:,} {GATES[pipeline]}" for pipeline, records in groups]
    lines = [f"| {first} | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    lines += [_line(f"`{name}`", groups, _part_of(part, name)) for name in names]
    return lines + ([_line("all", groups, lambda row: sum(row[part].values()))] if total else [])


def _part_of(part: str, name: str) -> Callable[[Row], float]:
    return lambda row: row[part].get(name, 0.0)


def _line(name: str, groups: Groups, value: Callable[[Row], float]) -> str:
    return f"| {name} | " + " | ".join(f"{statistics.median(map(value, rows)):.2f}" for rows in groups.values()) + " |"
