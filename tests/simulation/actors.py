"""What the processes of a schedule do. An error of ours ends one, as it ends a command; any other is a find."""

from collections.abc import Callable
from datetime import UTC, datetime

from tests.support.simulation import OTHER_CODE, PIPELINE, SimulatedCluster
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Completed, OpenPlan, Promoted, SealedPlan, Superseded
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.errors import CheckpointExpiredError, ConflictError, StoreError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.ports import PlanRequest

EXPECTED = (ConflictError, StoreError, CheckpointExpiredError)
UID = "accounts"
DAG_RUN = "dag/1"


def populate(world: SimulatedCluster) -> None:
    """Fills a schedule with actors."""
    rng, add = world.rng, world.scheduler.add
    for n in range(rng.choice((2, 2, 3))):
        add(f"runner{n}", _patient(world, _runner(world)))
    if rng.random() < 0.3:
        run = _dag_run(world)
        for n in range(rng.choice((1, 2))):
            world.runs.append(DAG_RUN)
            add(f"task{n}", _patient(world, run))
    if rng.random() < 0.4:
        add("aborter", _patient(world, _aborter(world)))
    if rng.random() < 0.35:
        add("compactor", _patient(world, _late(world, _compactor(world))))
    if rng.random() < 0.2:
        add("restorer", _patient(world, _late(world, _restorer(world))))
    if rng.random() < 0.2:
        add("promoter", _patient(world, _late(world, _promoter(world))))
        if rng.random() < 0.5:
            add("ender", _patient(world, _late(world, _ender(world))))


def _patient(world: SimulatedCluster, act: Callable[[], object]) -> Callable[[], None]:
    def go() -> None:
        for _ in range(world.rng.choice((1, 2, 2))):
            try:
                act()
            except EXPECTED as error:
                world.scheduler.trace.append(f"  {type(error).__name__}: {error.what}")

    return go


def _late(world: SimulatedCluster, act: Callable[[], object]) -> Callable[[], object]:
    """Waits for the first checkpoints, for a while."""
    wanted = world.rng.choice((1, 2, 2))

    def go() -> None:
        for _ in range(16):
            if len(list(world.coordinator.checkpoints())) >= wanted:
                break
        act()

    return go


def _runner(world: SimulatedCluster) -> Callable[[], object]:
    run = world.rng.choice(("", "sim/a", "sim/b"))
    request = PlanRequest(origin="sim", max_records=world.rng.choice((None, 1, 2)), run=run)
    world.runs += [run] if run else []
    pipeline = OTHER_CODE if world.rng.random() < 0.1 else PIPELINE

    def act() -> None:
        loop = CheckpointLoop(coordinator=world.coordinator, pipeline=pipeline, execute=world.execute)
        seen = loop.coordinator.head() if world.reads_ahead else None  # as a command reads it, before it takes a lock
        done = loop.make_checkpoints(request, seen=seen) if run else loop.run_once(request, seen)
        world.told += [c.plan.slot for c in done.checkpoints]

    return act


def _dag_run(world: SimulatedCluster) -> Callable[[], object]:
    """A DAG run: each task drives the loop to its own stage, from the plan that the task before it returned.

    Two processes may be at the same run, as a task that is taken for dead and its retry are.
    """
    end = datetime.fromtimestamp(world.clock.now_ms() / 1000 + world.rng.choice((0, 60)), tz=UTC)
    request = PlanRequest(origin="dag", interval_end=end, max_records=world.rng.choice((None, 1, 2)), run=DAG_RUN)
    pipeline = OTHER_CODE if world.rng.random() < 0.1 else PIPELINE
    returned: dict[str, CheckpointPlan] = {}

    def act() -> None:
        loop = CheckpointLoop(coordinator=world.coordinator, pipeline=pipeline, execute=world.execute)
        if "plan" not in returned:
            planned = loop.plan(request)
            world.told += [c.plan.slot for c in planned.checkpoints]
            if not isinstance(planned.state, OpenPlan):
                return
            returned["plan"] = planned.state.plan
        if "fold" not in returned:
            folded = loop.fold(returned["plan"], request)
            world.told += [c.plan.slot for c in folded.checkpoints]
            if not isinstance(folded.state, SealedPlan):
                return
            returned["fold"] = folded.state.plan
        done = loop.complete(returned["fold"])
        if isinstance(done, Completed):
            world.told.append(done.checkpoint.plan.slot)
            world.look_at_interval(done.checkpoint, end)
            world.scheduler.trace.append(f"  DAG run completed {done.checkpoint.plan.slot}")

    return act


def _aborter(world: SimulatedCluster) -> Callable[[], object]:
    def act() -> None:
        found = world.coordinator.open_plan()
        if isinstance(found, OpenPlan):
            failure = Failure(reason=FailureReason.DECLINED, message="declined", next="nothing.")
            world.coordinator.abort(found.plan, failure)

    return act


def _compactor(world: SimulatedCluster) -> Callable[[], object]:
    def act() -> None:
        head = world.coordinator.head().entry
        if not isinstance(head, Checkpoint) or not head.handles[UID]:
            return
        world.compact(head, UID, head.handles[UID])

    return act


def _restorer(world: SimulatedCluster) -> Callable[[], object]:
    """Restores; it has lost where a checkpoint or another closing took the slot that it wanted."""

    def act() -> None:
        head = world.coordinator.head()
        if not isinstance(head.entry, Checkpoint):
            return
        chosen = world.rng.choice(list(world.coordinator.checkpoints(head.timeline)))
        done = world.recovery.restore(RestorePoint(checkpoint=chosen))
        lost = isinstance(done, Superseded) or bool(done.overtaken)
        world.scheduler.trace.append(f"  {type(done).__name__} {done.closing}")
        world.scheduler.trace.append(f"  restore {'lost' if lost else 'won'}")

    return act


def _promoter(world: SimulatedCluster) -> Callable[[], object]:
    """Forks, catches up (or not quite), promotes; once more where a checkpoint wins the slot or the fork is behind."""
    most = world.rng.choice((None, 1))

    def act() -> None:
        found = list(world.coordinator.checkpoints())
        if not found:
            return
        name = f"f{world.ids()[-6:]}"
        world.recovery.fork(RestorePoint(checkpoint=world.rng.choice(found)), name)
        for _ in range(2):
            CheckpointLoop(
                coordinator=world.coordinator, pipeline=PIPELINE, execute=world.execute, timeline=name
            ).run_once(PlanRequest(origin="sim", max_records=most))
            done = world.promotion.promote(name)
            world.scheduler.trace.append(f"  {done}")
            if isinstance(done, Promoted):
                world.look_at(done.closing)
                break

    return act


def _ender(world: SimulatedCluster) -> Callable[[], object]:
    """Closes a fork, which somebody may be promoting."""

    def act() -> None:
        for _ in range(20):
            live = world.coordinator.timelines.live()
            forks = [n for n in world.coordinator.timelines.names() if n.startswith("f") and n != live]
            if forks:
                world.scheduler.trace.append(f"  {Ending(coordinator=world.coordinator).close(forks[-1]).closing}")
                break

    return act
