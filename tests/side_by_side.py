"""Runs `make test` and `make test-more` in parallel lanes: some need services, the others only compute.

Both have four lanes. The first two need services: in `make test` tests that share a broker and a Spark server, and
tests that need a whole stack, followed by those of pages in a browser, a file at a time by whichever of the two is
free; in `make test-more` tests that take minutes each. The other two lanes take parts from one queue until it is empty,
so that both processors are busy to the end. In `make test` the queue begins with DAGs that run inside their own process
and with tests that need only a broker; in both, tests that only compute follow, large parts first. What needs no
service runs at a lower priority, because services have deadlines.

The first lane prints to the terminal; the others write logs, which are printed when all lanes have ended, followed by
the duration of each part, and the processor time of it and of all processes that it has waited for: services that end
by themselves are not counted. The exit code is 0 only if all parts passed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

OWN = "e2e"
BROKER = "kafka and not (spark or ports or e2e)"
SHARED = "(spark or ports) and not e2e"
AIRFLOW = "airflow and not (kafka or spark or ports or e2e)"
COMPUTING = "not (kafka or spark or ports or airflow or e2e)"
PAGES = sorted(f"tests/e2e/{path.name}" for path in Path(__file__).parent.glob("e2e/test_pages*.py"))
"""They start an Airflow of their own and a browser, and no stack."""
PARTS = (
    ["tests/publications", "tests/contract"],
    ["tests/property"],
    ["tests/reading", "tests/process", "tests/wheel"],
    ["tests/unit"],
    ["tests/cli"],
)
"""Tests that only compute, parts that take long first. What is in none of them is one more, which follows the first."""
LONG_WITH_SERVICES = (
    [
        "tests/e2e/test_pages_walk.py",
        "tests/faults",
        "tests/s3/test_closings.py",
        "tests/s3/test_executors.py",
        "tests/s3/test_line.py",
        "tests/s3/test_row_compaction.py",
        "tests/s3/test_store_killed.py",
    ],
    [
        "tests/engine/test_cluster.py",
        "tests/engine/test_compaction.py",
        "tests/engine/test_filtering.py",
        "tests/engine/test_windows.py",
        "tests/engine/test_day_windows.py",
        "tests/engine/test_timers.py",
        "tests/engine/test_interval_joins.py",
        "tests/engine/test_co_process.py",
        "tests/engine/test_nexmark.py",
        "tests/weather",
    ],
)
NIGHTLY = [
    "tests/airflow/test_long_backfill.py",
    "tests/engine/test_gates_alike.py",
    "tests/engine/test_rescaling.py",
    "tests/perf/peers/test_peers.py",
    "tests/perf/test_large_state.py",
    "tests/s3/test_demo.py",
    "tests/weather/test_demo_weather.py",
    "tests/weather/test_punctuality_on_spark.py",
    "tests/weather/test_weather_on_spark.py",
]
"""These repeat in large, or in all combinations, what other tests show in small: `make test-nightly`."""
LONG = (
    ["tests/power_loss"],
    ["tests/retention"],
    ["tests/copies"],
    ["tests/s3/test_request_counts.py", "tests/s3/test_requests.py", "tests/s3/test_verbs.py"],
    ["tests/simulation"],
    ["tests/deliveries"],
)
"""Tests that try a thousand crash states and thousands of schedules, and tests of copies between stores."""
MORE = "--more"
COMMAND = [sys.executable, "-m", "pytest", "--durations=25"]
BESIDE = [*COMMAND, "-q", "-p", "no:cacheprovider"]
BELOW_SERVICES = ["nice", "-n", "5", *BESIDE]
LAST = ["nice", "-n", "10", *BESIDE]

Command = Sequence[str]


class Lane:
    """Commands in sequence, even if some of them fail; lanes that share a queue share the work.

    Attributes:
        commands: the queue; the lane ends when it is empty.
        log: the file of the output; None = the terminal.
        then: a queue that follows.
        worst: the worst exit code so far.
        took: what each command took, in words.
    """

    def __init__(self, commands: deque[Command], log: Path | None = None, then: deque[Command] | None = None) -> None:
        self.commands, self.log, self.worst, self.took = commands, log, 0, list[str]()
        self.then = deque[Command]() if then is None else then
        self._stopped = Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self.run, daemon=True)

    def start(self) -> None:
        """Runs the commands in a thread."""
        self._thread.start()

    def join(self) -> None:
        """Waits for the thread."""
        self._thread.join()

    def run(self) -> None:
        """Runs the commands here."""
        while not self._stopped.is_set():
            try:
                command = (self.commands or self.then).popleft()
            except IndexError:
                return
            began = time.monotonic()
            with open(self.log or os.devnull, "ab") as output:
                to = None if self.log is None else output
                self._child = subprocess.Popen(command, stdout=to, stderr=None if to is None else subprocess.STDOUT)
                code, cpu = _ended(self._child)
            self.worst = max(self.worst, abs(code))
            self.took.append(f"{(time.monotonic() - began) / 60:5.1f} min {cpu / 60:5.1f} min CPU  {_name(command)}")

    def stop(self) -> None:
        """Interrupts the running command like Ctrl-C, and gives it 60 seconds to stop its services."""
        self._stopped.set()
        child = self._child
        for number in (signal.SIGINT, signal.SIGKILL):
            if child is None or child.returncode is not None:
                return
            with suppress(ProcessLookupError):
                os.kill(child.pid, number)
            if self._thread.is_alive():
                self._thread.join(60)
            else:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(60)


def _ended(child: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Waits for a process: its exit code, and the processor seconds of it and of those that it has waited for."""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime


def _name(command: Command) -> str:
    return " ".join(word for word in command if word not in LAST and word != "5" and not word.startswith("-"))


def _without(folders: Sequence[str]) -> list[str]:
    return [f"--ignore={folder}" for folder in folders]


def _lanes(more: bool, given: Sequence[str]) -> tuple[Command, Command, list[Command], list[Command]]:
    """The commands of the first two lanes, the queue that both take from afterwards, and the queue of the others."""
    given = [*given, *_without(NIGHTLY)]
    if more:
        watched, own = LONG_WITH_SERVICES
        long: list[Command] = [[*LAST, *given, *folders] for folders in LONG]
        return [*COMMAND, *given, *watched], [*BESIDE, *given, *own], [], long
    given = [*given, *(word for folders in (*LONG_WITH_SERVICES, *LONG) for word in _without(folders))]
    computing = [*LAST, "-m", COMPUTING, *given]
    queue: list[Command] = [
        [*BELOW_SERVICES, "-m", AIRFLOW, *given, "tests/airflow"],
        [*BESIDE, "-m", BROKER, *given],
        [*computing, *PARTS[0]],
        [*computing, *(word for folders in PARTS for word in _without(folders))],
        *([*computing, *folders] for folders in PARTS[1:]),
    ]
    pages: list[Command] = [[*BESIDE, "-m", OWN, *given, path] for path in PAGES if f"--ignore={path}" not in given]
    stack = [*BESIDE, "-m", OWN, *given, *_without(PAGES), "tests/e2e"]
    return [*COMMAND, "-m", SHARED, *given], stack, pages, queue


def main() -> int:
    """Runs all lanes. `--more` selects the long tests; pytest gets all other arguments, which must not name tests."""
    given, began = [word for word in sys.argv[1:] if word != MORE], time.monotonic()
    first, second, pages, rest = _lanes(MORE in sys.argv, given)
    shared, following = deque(rest), deque(pages)
    watched = Lane(deque([first]), then=following)
    with tempfile.TemporaryDirectory(prefix="tidemark-tests-") as folder:
        logs = [Path(folder, f"{n}.log") for n in range(3)]
        lanes = [Lane(deque([second]), logs[0], following), *(Lane(shared, log) for log in logs[1:])]
        try:
            for lane in lanes:
                lane.start()
            watched.run()
            for lane in lanes:
                lane.join()
        finally:
            for lane in (watched, *lanes):
                lane.stop()
                if lane.log is not None and lane.log.exists():
                    sys.stdout.write(lane.log.read_text(errors="replace"))
        print(*(took for lane in (watched, *lanes) for took in lane.took), sep="\n")
        print(f"{(time.monotonic() - began) / 60:5.1f} min  in all")
    return max(lane.worst for lane in (watched, *lanes))


if __name__ == "__main__":
    sys.exit(main())
