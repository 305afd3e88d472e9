// One checkpoint: its operators, the ranges it read, the verdict of the gate, and its lineage.

import { Lineage, RunLink } from "./graph.js";
import { Progress } from "./progress.js";
import { DeadLetters, Records } from "./records.js";
import { Answered, bytes, C, count, duration, Facts, h, letters, Muted, Name, ours, Status, Trouble, useAnswer,
  useState, when } from "./ui.js";
import { Rows } from "./table.js";

const PARTS = [["lineage", "Lineage"], ["operators", "Operators"], ["offsets", "Offsets"],
  ["time", "Event time"], ["letters", "Dead letters"], ["gate", "Gate"], ["facts", "Facts"]];

const LIVE = 2000;

// An open checkpoint is polled until it is final; a final one never changes.
export const useDetails = (pipeline, checkpoint) => useAnswer(
  ours(["pipelines", pipeline, "checkpoints", "details", checkpoint]),
  (data) => (data && data.status !== "IN_PROGRESS" ? 0 : LIVE));

// `actions` apply to completed checkpoints that retention has not released.
export function Details({ answer, pipeline, checkpoint, dag, onCheckpoint, actions }) {
  const [part, setPart] = useState("lineage");
  return h(Answered, { answer, what: `chk-${checkpoint}` }, (data) => h(C.Box, { "data-status": data.status },
    data.status === "COMPLETED" && !data.discarded && actions,
    h(C.Flex, { gap: 4, align: "center", wrap: "wrap", fontSize: "sm", my: 2 },
      h(Status, data), h("span", null, "on ", h(Name, null, data.timeline)),
        h("span", null, `planned ${when(data.trigger_timestamp)} UTC`),
      data.drains && h(C.Badge, { colorPalette: "gray", variant: "subtle" }, "drain: closes all windows"),
      data.status === "COMPLETED" && h("span", null, `end to end ${duration(data.end_to_end_duration)}`),
      data.status === "COMPLETED" && h("span", null, `work ${duration(data.work_duration)}`),
      dag && h(RunLink, { dag, run: data.origin, label: "DAG run" })),
    data.progress && h(Progress, { progress: data.progress, of: data }),
    data.failure_message && h(Trouble, { error: { what: `${data.failure_reason}: ${data.failure_message}`,
      next: data.failure_next } }),
    h(Tabs, { name: `Parts of ${data.name}`, parts: PARTS, part, setPart }),
    // Drawn again when the status changes.
    h(TabPanel, { key: data.status, parts: PARTS, part },
      part === "lineage" && h(Lineage, { pipeline, checkpoint, dag, onCheckpoint }),
      part === "operators" && h(Operators, { data }),
      part === "offsets" && h(Offsets, { data, pipeline }),
      part === "time" && h(EventTime, { data, pipeline }),
      part === "letters" && h(DeadLetters, { pipeline, checkpoint, tasks: data.tasks }),
      part === "gate" && h(Gate, { data }),
      part === "facts" && h(AllFacts, { data }))));
}

// One stop of the Tab key; arrow keys, Home and End move between the tabs.
export function Tabs({ name, parts, part, setPart }) {
  const press = (event) => {
    const at = parts.findIndex(([id]) => id === part);
    const next = { ArrowRight: (at + 1) % parts.length, ArrowLeft: (at + parts.length - 1) % parts.length, Home: 0,
      End: parts.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setPart(parts[next][0]);
    event.currentTarget.querySelectorAll("[role=tab]")[next].focus();
  };
  return h(C.Flex, { role: "tablist", "aria-label": name, gap: 1, borderBottomWidth: "1px", borderColor: "border",
    mb: 3, wrap: "wrap", onKeyDown: press },
    parts.map(([id, word]) => h(C.Button, {
      key: id, role: "tab", size: "sm", variant: "ghost", borderRadius: 0, "aria-selected": part === id,
        tabIndex: part === id ? 0 : -1, onClick: () => setPart(id), borderWidth: 0, borderBottomWidth: "3px",
        borderBottomColor: part === id ? "fg" : "transparent", fontWeight: part === id ? "semibold" : "normal",
    }, word)));
}

// The content of a tab.
export const TabPanel = ({ parts, part, children }) => h("div", { role: "tabpanel",
  "aria-label": parts.find(([id]) => id === part)[1] }, children);

const known = (n) => (n === null ? "–" : count(n));
const compacted = (c) => `of ${c.checkpoint}: ${bytes(c.bytes_before)} to ${bytes(c.bytes_after)}${
  c.written_bytes === null ? "" : `, wrote ${bytes(c.written_bytes)}`}`;

function Operators({ data }) {
  if (data.tasks.length === 0) return h(Muted, null,
    "No operator has acknowledged yet: the checkpoint is not completed.");
  const steps = [...new Set(data.tasks.flatMap((t) => Object.keys(t.timings)))].sort();
  const columns = [
    { title: "Operator", cell: (t) => h("b", null, h(Name, null, t.uid)) },
    { title: "Kind", cell: (t) => t.kind },
    { title: "Records", end: true, cell: (t) => count(t.read) },
    { title: "Applied", end: true, cell: (t) => count(t.applied) },
    { title: "Filtered", end: true, cell: (t) => count(t.filtered) },
    { title: "Dead letters", end: true, cell: (t) => count(t.dead_lettered) },
    ...(data.tasks.some((t) => t.frontier) ? [
      { title: "Late", end: true, cell: (t) => (t.frontier ? count(t.late) : "") },
      { title: "Fired", end: true, cell: (t) => (t.frontier ? count(t.fired) : "") },
      { title: "Frontier (UTC)", cell: (t) => (t.frontier ? when(t.frontier) : "") }] : []),
    { title: "Keys", end: true, cell: (t) => count(t.keys) },
    { title: "Emitted", end: true, cell: (t) => count(t.emitted) },
    { title: "Incremental", end: true, cell: (t) => bytes(t.checkpointed_size) },
    { title: "Full", end: true, cell: (t) => bytes(t.state_size) },
    { title: "Rows", end: true, cell: (t) => count(t.rows) },
    { title: "Files", end: true, cell: (t) => count(t.files) },
    { title: "Live runs", end: true, cell: (t) => known(t.live_runs) },
    { title: "Level", end: true, cell: (t) => known(t.deepest_level) },
    { title: "Rows per file", end: true, cell: (t) => t.run_rows
      ? `${count(t.run_rows.min)} – ${count(t.run_rows.max)}` : "–" },
    { title: "Compaction", cell: (t) => t.compaction ? compacted(t.compaction) : "–" },
    { title: "Tables", cell: (t) => h(Name, { most: "14rem" },
      t.segments.map((s) => `${s.table} ${s.version} (${s.after}, ${s.through}]`).join(", ") || "none") },
    { title: "Work", end: true, cell: (t) => duration(t.work_duration) },
    ...steps.map((step) => ({ title: step.replace(/_/g, " "), end: true,
      cell: (t) => (step in t.timings ? duration(t.timings[step]) : "") })),
  ];
  const shared = Object.entries(data.timings).filter(([step]) => !step.includes(".")).map(([step,
    ms]) => `${step} ${duration(ms)}`);
  return h(C.Box, null, h(Rows, { name: "Operators", columns, rows: data.tasks, keyOf: (t) => t.uid }),
    shared.length > 0 && h(Muted, { mt: 2 }, `For all of them together: ${shared.join(", ")}.`));
}

function Offsets({ data, pipeline }) {
  const [open, setOpen] = useState(null);
  const columns = [
    { title: "Partition", cell: (r) => h(Name, null, r.partition) },
    { title: "Start (included)", end: true, cell: (r) => count(r.start) },
    { title: "End (excluded)", end: true, cell: (r) => count(r.end) },
    { title: "Offsets", end: true, cell: (r) => count(r.end - r.start) },
    { title: "Lag", end: true, cell: (r) => count(r.pending) },
    { title: "Greatest event time (UTC)", cell: (r) => when(r.watermark) },
    { title: "Topic id", cell: (r) => h(Name, { mono: true, most: "12rem" }, r.topic_id || "–") },
    { title: "Records", cell: (r) => r.end > r.start && h(C.Button, { size: "2xs", variant: "outline",
      "aria-expanded": open === r.partition, "aria-label": `Records of ${r.partition}`,
      onClick: () => setOpen(open === r.partition ? null : r.partition) }, "Records…") },
  ];
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Rows, { name: "Offsets", columns, rows: data.ranges, keyOf: (r) => r.partition, chosen: open }),
    open && h(Records, { key: open, pipeline, checkpoint: data.id, query: { partition: open },
      word: `Read records of ${open} from Kafka` }));
}

const WAITS = { windows: "open windows", timers: "timers", rows: "rows that wait for a partner" };
const DUE = [
  { title: "Due at (UTC)", cell: (d) => when(d.at) },
  { title: "How many", end: true, cell: (d) => count(d.count) },
  { title: "Keys", cell: (d) => h(Name, { most: "34rem" },
    d.some.join("; ") + (d.count > d.some.length ? "; …" : "")) },
];

// Watermarks of sources and frontiers of operators, and on demand what waits for them.
function EventTime({ data, pipeline }) {
  const [open, setOpen] = useState(null);
  const sources = Object.entries(data.source_watermarks).map(([name, at]) => ({ name, ...at }));
  const operators = data.tasks.filter((t) => t.is_clocked);
  if (sources.length === 0 && operators.length === 0) return h(Muted, null, data.tasks.length
    ? "No source declares a watermark, and no operator has windows or timers."
    : "The checkpoint is not completed: no clock has moved.");
  const columns = [
    { title: "Operator", cell: (t) => h("b", null, h(Name, null, t.uid)) },
    { title: "Frontier (UTC)", cell: (t) => (t.frontier ? when(t.frontier) : "none yet") },
    { title: "Emitted", end: true, cell: (t) => count(t.emitted) },
    { title: "Fired", end: true, cell: (t) => count(t.fired) },
    { title: "Late", end: true, cell: (t) => count(t.late) },
    { title: "What waits", cell: (t) => h(C.Button, { size: "2xs", variant: "outline", "aria-expanded": open === t.uid,
      "aria-label": `What waits in ${t.uid}`, onClick: () => setOpen(open === t.uid ? null : t.uid) }, "What waits…") },
  ];
  return h(C.Flex, { direction: "column", gap: 3 },
    sources.length > 0 && h(Rows, { name: "Sources", columns: SOURCES, rows: sources, keyOf: (s) => s.name }),
    operators.length > 0 && h(Rows, { name: "Operators with a frontier", columns, rows: operators,
      keyOf: (t) => t.uid, chosen: open }),
    open && h(Waiting, { key: open, pipeline, checkpoint: data.id, uid: open }));
}

const SOURCES = [
  { title: "Source", cell: (s) => h("b", null, h(Name, null, s.name)) },
  { title: "Watermark (UTC)", cell: (s) => (s.watermark ? when(s.watermark) : "none yet") },
  { title: "Delay", end: true, cell: (s) => (s.delay === null ? "–" : duration(s.delay)) },
  { title: "Idle", cell: (s) => (s.idle ? "idle" : "") },
];

function Waiting({ pipeline, checkpoint, uid }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "details", checkpoint, "subtasks", uid, "due"],
    { limit: 20 }), 0);
  return h(Answered, { answer, what: `what waits in ${uid}` }, (due) => h(C.Box, { minW: 0, "data-due": uid },
    h(C.Text, { fontSize: "sm", mb: 1 }, h("b", null, h("bdi", null, uid)), ` has ${count(due.total)} ${
      WAITS[due.what]}`, due.first.length > 0 && due.total > due.first.reduce((sum, d) => sum + d.count, 0)
      ? ", of which these are due first:" : "."),
    due.first.length > 0 && h(Rows, { name: `What waits in ${uid}`, columns: DUE, rows: due.first,
      keyOf: (d) => d.at })));
}

function Gate({ data }) {
  if (data.expectations.length === 0) return h(Muted, null,
    data.tasks.length ? "The pipeline has no gate." : "The gate has not run.");
  const columns = [
    { title: "Verdict", cell: (e) => h(C.Badge, { colorPalette: e.success ? "green" : e.severity === "warning"
      ? "orange" : "red" }, e.success ? "✓ held" : "✕ failed") },
    { title: "Frame", cell: (e) => h(Name, null, e.frame) },
    { title: "Expectation", cell: (e) => h(Name, null, e.type) },
    { title: "Severity", cell: (e) => e.severity },
    { title: "Seen", cell: (e) => h(Name, { most: "34rem" }, e.detail) },
  ];
  return h(Rows, { name: "Gate", columns, rows: data.expectations,
    keyOf: (e) => `${e.frame} ${e.type} ${e.detail}` });
}

function watermarksOf(sources) {
  return Object.fromEntries(Object.entries(sources).map(([name, at]) => [`Watermark of ${name}`,
    `${at.watermark ? when(at.watermark) : "none yet"}${at.idle ? ", idle" : ""}`]));
}

function AllFacts({ data }) {
  return h(Facts, { facts: {
    Slot: data.slot,
    Parent: data.parent === null ? "none" : `chk-${data.parent}`,
    Attempt: data.attempt,
    "Data interval": data.interval && `${when(data.interval.start)} to ${when(data.interval.end)}`,
    "Logical time": when(data.logical_time),
    "Greatest event time": when(data.watermark),
    ...watermarksOf(data.source_watermarks),
    "Sealed at": when(data.latest_ack_timestamp),
    "End to end": data.latest_ack_timestamp ? duration(data.end_to_end_duration) : null,
    Work: data.latest_ack_timestamp ? duration(data.work_duration) : null,
    "Records rejected": data.dead_letters > 0 ? `${letters(data)}${data.dead_letters_at_most
      ? ": several operators may have rejected the same record" : ""}` : null,
    Manifest: data.external_path,
    Acknowledged: `${data.num_acknowledged_subtasks} of ${data.num_subtasks} operators`,
    "Made by": data.origin,
    "Code (fingerprint)": data.fingerprint,
    Isolation: data.isolation,
    Repeats: data.replays.map((n) => `chk-${n}`).join(", "),
    "Adopted compactions": Object.values(data.adopted).join(", "),
    "Accepted losses": data.losses.join("; "),
    "State left behind": Object.entries(data.left_behind).map(([uid,
      rows]) => `${uid} (${count(rows)} rows)`).join(", "),
  } });
}
