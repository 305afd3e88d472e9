"""The lineage of one checkpoint as a graph: partitions, operators, tables, gate, manifest, related checkpoints.

The columns, left to right, follow the steps of a checkpoint. The page that draws the graph chooses places and shapes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.answers.checkpoint_facts import iso
from tidemark.answers.lineage_graph import LineageEdge, LineageGraph, LineageNode, Plain
from tidemark.context import Context
from tidemark.glance import glance_at
from tidemark.model.checkpoint.manifest import Ack, Checkpoint, Verdict
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.names import operator_of
from tidemark.model.core.offsets import OffsetRange
from tidemark.model.schema.operator_schema import KeyColumn
from tidemark.operations import savepoints
from tidemark.web import history_cache
from tidemark.web.history import CheckpointStatus, HistoryEntry
from tidemark.web.row_origin import topics_of

SHOWN = 8
"""A topic with more partitions than this gets one node that lists them, instead of a node each."""
INPUTS, OPERATORS, TABLES, GATE, MANIFEST, AFTER = range(6)
"""The columns."""


@dataclass(slots=True)
class _Graph:
    """A graph under construction."""

    nodes: list[LineageNode] = field(default_factory=list)
    edges: list[LineageEdge] = field(default_factory=list)

    def node(self, name: str, kind: str, column: int, label: str, **more: Any) -> str:  # noqa: ANN401
        """Adds a node; returns its name."""
        self.nodes.append(
            LineageNode(id=name, kind=kind, column=column, label=label, facts=more.pop("facts", {}), **more)
        )
        return name

    def edge(self, begin: str, end: str) -> None:
        """Adds an edge."""
        self.edges.append(LineageEdge(begin=begin, end=end))


def build_graph(context: Context, name: str, checkpoint: int) -> LineageGraph:
    """The graph of one checkpoint, completed or not; if its manifest is damaged, that of its plan.

    Raises:
        NotFoundError: no such pipeline, or the id was never planned.
        CorruptObjectError: its plan is damaged, or its manifest is and its plan is gone.
        ReleasedError: its manifest is damaged, and it was given up.
    """
    context = glance_at(context)
    history = history_cache.open_history(context, name)
    beside = history.beside(checkpoint)
    entry = history.entry(checkpoint)
    timelines = context.coordinator(name).timelines
    found = history_cache.find_checkpoint(context, name, entry, checkpoint)
    plan = timelines.plan(checkpoint) if found is None else found.plan
    # The child of an old checkpoint, too: most often the id after it.
    near = [n for n in (plan.parent, *beside) if n is not None]
    entries = {e.id: e for e in history_cache.list_known(context, name)} | history.entries_of(near)
    graph = _Graph()
    _inputs(graph, plan)
    _relatives(graph, plan, entries, timelines.entry(plan.slot.timeline, 1))
    _operators(graph, plan, found)
    _ending(graph, plan, found, entry)
    for child in (e for e in entries.values() if e.parent == checkpoint):
        done = child.status is CheckpointStatus.COMPLETED
        second = f"{child.slot.timeline}{'' if done else ', ' + child.status.value.lower().replace('_', ' ')}"
        graph.node(child.name, "child", AFTER, child.name, second=second, checkpoint=child.id, run=child.origin)
        graph.edge("manifest", child.name)
    for pin in savepoints.open_savepoints(context, name).pins().get(checkpoint, ()):
        graph.node(f"pin {pin}", "savepoint", AFTER, pin, second="savepoint")
        graph.edge("manifest", f"pin {pin}")
    status = entry.status if entry is not None else CheckpointStatus.COMPLETED
    return LineageGraph(
        id=checkpoint,
        name=plan.name,
        status=status.value,
        run=plan.origin,
        nodes=graph.nodes,
        edges=graph.edges,
    )


def _inputs(graph: _Graph, plan: CheckpointPlan) -> None:
    for topic, topic_id in plan.topic_ids.items():
        ranges = {tp: r for tp, r in plan.ranges.items() if tp.topic == topic}
        asset = f"topic {topic}"
        if len(ranges) > SHOWN:
            span = sum(r.span for r in ranges.values())
            whole: dict[str, Plain] = {
                "offsets": span,
                "topic id": topic_id,
                **{str(tp): _range(r) for tp, r in ranges.items()},
            }
            second = f"{len(ranges):,} partitions, {span:,} offsets"
            graph.node(asset, "topic", INPUTS, topic, second=second, facts=whole, asset=asset)
            continue
        for tp, bounds in ranges.items():
            facts: dict[str, Plain] = {
                "start (included)": bounds.start,
                "end (excluded)": bounds.end,
                "offsets": bounds.span,
                "left in the log": plan.pending.get(tp, 0),
                "topic id": topic_id,
            }
            graph.node(f"partition {tp}", "partition", INPUTS, str(tp), second=_range(bounds), facts=facts, asset=asset)


def _relatives(graph: _Graph, plan: CheckpointPlan, entries: Mapping[int, HistoryEntry], first: object) -> None:
    if plan.parent is not None:
        parent = entries.get(plan.parent)
        second = "parent" if parent is None else f"parent, on {parent.slot.timeline}"
        run = None if parent is None else parent.origin
        graph.node("parent", "parent", INPUTS, f"chk-{plan.parent}", second=second, checkpoint=plan.parent, run=run)
    if isinstance(first, Genesis) and first.parent == plan.parent:
        began = first.savepoint or f"chk-{first.parent}"
        facts = {"timeline": first.timeline, "why": first.why, "began": iso(first.at_ms) if first.at_ms else None}
        what = f"{first.why} from {'savepoint' if first.savepoint else 'checkpoint'}"
        graph.node("genesis", "savepoint", INPUTS, began, second=what, facts=facts)
        graph.edge("genesis", "parent")
    for repeated in plan.replays:
        run = entries[repeated].origin if repeated in entries else None
        name = f"repeats {repeated}"
        graph.node(name, "parent", INPUTS, f"chk-{repeated}", second="is repeated", checkpoint=repeated, run=run)


def _operators(graph: _Graph, plan: CheckpointPlan, found: Checkpoint | None) -> None:
    for uid, schema in plan.schemas.items():
        ack = None if found is None else found.ack(uid)
        name = f"operator {uid}"
        facts: dict[str, Plain] = {"kind": schema.kind, "key": ", ".join(map(_key_text, schema.own_keys)) or "none"}
        if schema.window is not None:
            facts["windows" if schema.interval_join is None else "join"] = schema.window.shown
        if schema.timers is not None:
            facts["timers"] = "none yet" if ack is None else f"{ack.fired} fired"
        if schema.where is not None:
            facts["where"] = schema.where.text
        if names := _inputs_of(plan, uid):
            facts["input"] = ", ".join(names)
        facts |= {f"joins {join.uid} by": ", ".join(join.on) for join in schema.joins}
        if ack is not None:
            facts |= {
                "records read": ack.read,
                "applied": ack.applied,
                "filtered": ack.filtered,
                "dead letters": ack.dead_lettered,
                "keys touched": ack.keys,
                "emitted": ack.emitted,
                **{f"emitted to {output}": of.emitted for output, of in ack.outputs.items()},
                **{f"{step} ms": ms for step, ms in ack.timings_ms.items()},
            }
        second: str = schema.kind
        if ack is not None:
            made = _many(ack.keys, "key") if schema.keeps_state else f"{ack.emitted_to_all:,} emitted"
            second = f"{_many(ack.applied, 'record')}, {made}"
        graph.node(name, "operator", OPERATORS, uid, second=second, facts=facts, task="fold")
        for source in (*_read_by(graph, plan, uid), *(f"operator {join.uid}" for join in schema.joins)):
            graph.edge(source, name)
        _tables(graph, plan, uid, ack, found)


def _inputs_of(plan: CheckpointPlan, uid: str) -> tuple[str, ...]:
    """The sources and outputs that an operator reads; empty if the plan does not say."""
    return plan.schemas[uid].several_inputs or tuple(filter(None, [plan.inputs.get(uid)]))


def _read_by(graph: _Graph, plan: CheckpointPlan, uid: str) -> Iterator[str]:
    """Nodes of the operator or of the topics that an operator reads; see `topics_of`."""
    names = _inputs_of(plan, uid)
    for name in names:
        if name not in plan.sources:
            yield f"operator {operator_of(name, plan.schemas)}"
    read = {topic for name in names if name in plan.sources for topic in plan.sources[name]}
    topics = read if names else topics_of(plan, uid)
    for node in graph.nodes:
        topic = (node.asset or "").removeprefix("topic ") if node.column == INPUTS else ""
        if topic and topic in topics:
            yield node.id


def _tables(graph: _Graph, plan: CheckpointPlan, uid: str, ack: Ack | None, found: Checkpoint | None) -> None:
    operator = f"operator {uid}"
    before = plan.handles[uid]
    after = before if ack is None else ack.handle
    if before or after:
        facts, second = _table_facts(before, after), _change(before, after)
        if ack is None:  # only a manifest says what comes after
            del facts["after"]
            second = f"before: {versions(before)}"
        asset = f"{plan.pipeline}/state/{uid}"
        name = graph.node(f"state {uid}", "state", TABLES, f"{uid} state", second=second, facts=facts, asset=asset)
        graph.edge(operator, name)
        if before and plan.parent is not None:
            graph.edge("parent", name)
    if ack is None or found is None:
        return
    for output, report in ack.by_output.items():
        sink = found.sinks.get(output)
        if sink is None:
            continue
        planned = plan.sinks[output].handle
        asset = f"topic {sink.topic}" if sink.topic else f"{plan.pipeline}/sinks/{sink.name}"
        facts = {"emitted": report.emitted, **_table_facts(planned, sink.handle)}
        if output != uid:
            facts = {"output": output, **facts}
        second = f"{_many(report.emitted, 'row')}, {_change(planned, sink.handle)}"
        graph.node(f"sink {sink.name}", "sink", TABLES, sink.name, second=second, facts=facts, asset=asset)
        graph.edge(operator, f"sink {sink.name}")
    if ack.dead_lettered:
        asset = f"{plan.pipeline}/dead_letters/{uid}"
        second = _many(ack.dead_lettered, "dead letter")
        facts = _table_facts(plan.dead_letters[uid], ack.dead_letters)
        graph.node(
            f"dead {uid}", "dead_letters", TABLES, f"{uid} dead letters", second=second, facts=facts, asset=asset
        )
        graph.edge(operator, f"dead {uid}")


def _key_text(key: KeyColumn) -> str:
    return key.name if key.inputs is None else f"{key.name} = {key.source}"


def _change(before: StateHandle, after: StateHandle) -> str:
    """`runs 8 → 9`: tables that are new or have a new version, newest first."""
    if before == after:
        return f"unchanged, {versions(after)}"
    was = {s.path: s.version for s in before}
    changed = [
        f"{s.path.rpartition('/')[2]} {f'{was[s.path]} → {s.version}' if s.path in was else s.version}"
        for s in reversed(after.segments)
        if was.get(s.path) != s.version
    ]
    return ", ".join(changed) or "compacted"


def _table_facts(before: StateHandle, after: StateHandle) -> dict[str, Plain]:
    held = {f"{s.path} version {s.version}": f"({s.after}, {s.through}], {s.rows:,} rows" for s in after}
    return {
        "before": versions(before) or "none",
        "after": versions(after) or "none",
        "rows": after.rows,
        "bytes": after.bytes,
        **held,
    }


def _ending(graph: _Graph, plan: CheckpointPlan, found: Checkpoint | None, entry: HistoryEntry | None) -> None:
    ends = [n.id for n in graph.nodes if n.column == TABLES]
    ends = ends or [n.id for n in graph.nodes if n.column == OPERATORS]
    if found is not None and found.sealed.verdict.expectations:
        ends = [_gate(graph, found.sealed.verdict, ends)]
    status = CheckpointStatus.COMPLETED if entry is None else entry.status
    facts: dict[str, Plain] = {
        "timeline": plan.slot.timeline,
        "sequence": plan.slot.sequence,
        "logical time": iso(plan.logical_time_ms),
        "planned": iso(plan.planned_at_ms),
        "isolation": plan.isolation,
        "code": plan.fingerprint[:12],
    }
    if found is not None and entry is not None:
        facts |= {"manifest": entry.key, "attempt": found.sealed.attempt, "records": found.sealed.facts.records}
    elif entry is not None and entry.failure[0]:
        facts |= dict(zip(("reason", "message", "next"), entry.failure, strict=True))
    second = status.value.lower().replace("_", " ")
    asset = f"{plan.pipeline}/checkpoint"
    more = {"asset": asset, "status": status.value}
    if status is CheckpointStatus.COMPLETED:  # of any other one, task complete is not where it ended
        more["task"] = "complete"
    graph.node("manifest", "manifest", MANIFEST, plan.name, second=second, facts=facts, **more)
    for end in ends:
        graph.edge(end, "manifest")


def _gate(graph: _Graph, verdict: Verdict, ends: Sequence[str]) -> str:
    held = sum(e.success for e in verdict.expectations)
    facts = {f"{e.frame}: {e.type}": f"{'held' if e.success else 'failed'}: {e.detail}" for e in verdict.expectations}
    second = f"{held} of {len(verdict.expectations)} held"
    for end in ends:
        graph.edge(end, "gate")
    return graph.node("gate", "gate", GATE, "gate", second=second, facts=facts, task="validate")


def versions(handle: StateHandle) -> str:
    """`base 3 + runs 12`: the tables of a handle with the versions that are read; empty if there are none."""
    return " + ".join(f"{s.path.rpartition('/')[2]} {s.version}" for s in handle)


def _range(offsets: OffsetRange) -> str:
    return f"[{offsets.start:,}, {offsets.end:,})"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
