// One checkpoint: its operators, the ranges it read, the verdict of the gate, and its lineage.

import { Copy } from "./copying.js";
import { DueRows } from "./eventtime.js";
import { FailedCheckpoint } from "./failure.js";
import { Lineage, RunLink, useLineage } from "./graph.js";
import { Progress } from "./progress.js";
import { Operators, Storage } from "./operators.js";
import { DeadLetters, Records } from "./records.js";
import { Answered, C, count, counted, duration, Facts, h, inFull, inZone, letters, Muted, Name, ours, runOf, Status,
  useAnswer, useEffect, useRef, useState, when } from "./ui.js";
import { Rows } from "./table.js";

const PARTS = [["lineage", "Lineage"], ["operators", "Operators"], ["offsets", "Offsets"],
  ["time", "Event time"], ["letters", "Dead letters"], ["gate", "Gate"], ["storage", "Storage"], ["facts", "Facts"]];

// What the plan says, if the manifest is damaged.
const PLANNED = PARTS.filter(([id]) => ["lineage", "offsets", "facts"].includes(id));

const LIVE = 2000;

// An open checkpoint is polled until it is final; a final one never changes.
export const useDetails = (pipeline, checkpoint) => useAnswer(
  ours(["pipelines", pipeline, "checkpoints", "details", checkpoint]),
  (data) => (data && data.status !== "IN_PROGRESS" ? 0 : LIVE));

// `actions` apply to completed checkpoints that retention has not released.
// On the page of a run, `run` is its id and `shown` the errors that stand above: neither is repeated.
export function Details({ answer, pipeline, checkpoint, dag, run, shown, onCheckpoint, actions }) {
  const [chosen, setPart] = useState("lineage");
  const lineage = useLineage(pipeline, checkpoint, answer.data && answer.data.status);
  const parts = answer.data && answer.data.status === "DAMAGED" ? PLANNED : PARTS;
  const part = parts.some(([id]) => id === chosen) ? chosen : "lineage";
  return h(Answered, { answer, what: `chk-${checkpoint}` }, (data) => h(C.Box, { "data-status": data.status },
    data.status === "COMPLETED" && !data.discarded && actions,
    h(C.Flex, { gap: 4, align: "center", wrap: "wrap", fontSize: "sm", my: 2 },
      h(Status, data), h("span", null, "on ", h(Name, null, data.timeline)),
        h("span", null, `planned ${inFull(data.trigger_timestamp)}`),
      data.status === "COMPLETED" && h("b", null, readOf(data)),
      data.drains && h(C.Badge, { colorPalette: "gray", variant: "subtle" }, "drain: closes all windows"),
      data.status === "COMPLETED" && h("span", null, `end to end ${duration(data.end_to_end_duration)}`),
      data.status === "COMPLETED" && h("span", null, `work ${duration(data.work_duration)}`),
      dag && run !== data.origin && h(RunLink, { dag, run: data.origin, label: "DAG run" })),
    data.progress && h(Progress, { progress: data.progress, of: data, pipeline }),
    data.failure_message && h(FailedCheckpoint, { data, dag, shown, onCheckpoint }),
    h(Tabs, { name: `Parts of ${data.name}`, parts, part, setPart }),
    // Drawn again when the status changes.
    h(TabPanel, { key: data.status, parts, part },
      part === "lineage" && h(Lineage, { answer: lineage, pipeline, checkpoint, dag, onCheckpoint }),
      part === "operators" && h(Operators, { data }),
      part === "offsets" && h(Offsets, { data, pipeline }),
      part === "time" && h(EventTime, { data, pipeline }),
      part === "letters" && h(DeadLetters, { pipeline, checkpoint, tasks: data.tasks, released: data.discarded }),
      part === "gate" && h(Gate, { data }),
      part === "storage" && h(Storage, { data }),
      part === "facts" && h(AllFacts, { data }))));
}

const readOf = (data) => `${counted(data.records, "record")} read${
  data.dead_letters > 0 ? `, ${letters(data)} rejected` : ""}`;

// One stop of the Tab key; arrow keys, Home and End move between the tabs.
export function Tabs({ name, parts, part, setPart }) {
  const strip = useRef(null);
  // On a narrow screen the strip scrolls sideways: the chosen tab is in sight.
  useEffect(() => {
    const [box, tab] = [strip.current, strip.current.querySelector("[aria-selected=true]")]
      .map((e) => e && e.getBoundingClientRect());
    if (tab && (tab.left < box.left || tab.right > box.right)) strip.current.scrollLeft += tab.left - box.left - 16;
  }, [part]);
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
    mb: 3, overflowX: "auto", overflowY: "hidden", ref: strip, onKeyDown: press },
    parts.map(([id, word]) => h(C.Button, {
      key: id, role: "tab", size: "sm", variant: "ghost", borderRadius: 0, "aria-selected": part === id,
        tabIndex: part === id ? 0 : -1, onClick: () => setPart(id), flexShrink: 0, borderWidth: 0,
        borderBottomWidth: "2px", borderBottomColor: part === id ? "border.info" : "transparent",
        fontWeight: part === id ? "semibold" : "normal",
    }, word)));
}

// The content of a tab.
export const TabPanel = ({ parts, part, children }) => h("div", { role: "tabpanel",
  "aria-label": parts.find(([id]) => id === part)[1] }, children);

function Offsets({ data, pipeline }) {
  const [open, setOpen] = useState(null);
  const columns = [
    { title: "Partition", cell: (r) => h(Name, null, r.partition) },
    { title: "Start (included)", end: true, cell: (r) => count(r.start) },
    { title: "End (excluded)", end: true, cell: (r) => count(r.end) },
    { title: "Offsets", end: true, cell: (r) => count(r.end - r.start) },
    { title: "Lag", end: true, cell: (r) => count(r.pending) },
    { title: inZone("Greatest event time"), cell: (r) => when(r.watermark) },
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
    { title: inZone("Frontier"), cell: (t) => (t.frontier ? when(t.frontier) : "none yet") },
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
  { title: () => inZone("Watermark"), cell: (s) => (s.watermark ? when(s.watermark) : "none yet") },
  { title: "Delay", end: true, cell: (s) => (s.delay === null ? "–" : duration(s.delay)) },
  { title: "Idle", cell: (s) => (s.idle ? "idle" : "") },
];

function Waiting({ pipeline, checkpoint, uid }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "details", checkpoint, "subtasks", uid, "due"],
    { limit: 20 }), 0);
  return h(Answered, { answer, what: `what waits in ${uid}` }, (due) => h(DueRows, { due }));
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

// The first digits of a hash; all of them can be copied.
export const Fingerprint = ({ of }) => h(C.Flex, { as: "span", display: "inline-flex", gap: 2, align: "center",
  wrap: "wrap" },
  h(C.Box, { as: "code", title: of }, of.slice(0, 12)), h(Copy, { text: () => of, what: "the fingerprint" }));

function watermarksOf(sources) {
  return Object.fromEntries(Object.entries(sources).map(([name, at]) => [inZone(`Watermark of ${name}`),
    `${at.watermark ? when(at.watermark) : "none yet"}${at.idle ? ", idle" : ""}`]));
}

function AllFacts({ data }) {
  const damaged = data.status === "DAMAGED";
  return h(Facts, { facts: {
    Slot: data.slot,
    Parent: data.parent === null ? "none" : `chk-${data.parent}`,
    Attempt: damaged ? null : data.attempt || "none has begun",
    [inZone("Data interval")]: data.interval && `${when(data.interval.start)} to ${when(data.interval.end)}`,
    [inZone("Logical time")]: when(data.logical_time),
    [inZone("Greatest event time")]: when(data.watermark),
    ...watermarksOf(data.source_watermarks),
    [inZone("Sealed at")]: when(data.latest_ack_timestamp),
    "End to end": data.latest_ack_timestamp ? duration(data.end_to_end_duration) : null,
    Work: data.latest_ack_timestamp ? duration(data.work_duration) : null,
    "Records rejected": data.dead_letters > 0 ? `${letters(data)}${data.dead_letters_at_most
      ? ": several operators may have rejected the same record" : ""}` : null,
    Manifest: data.external_path,
    Acknowledged: damaged ? null : `${data.num_acknowledged_subtasks} of ${data.num_subtasks} operators`,
    "Made by": runOf(data.origin),
    "Code (fingerprint)": h(Fingerprint, { of: data.fingerprint }),
    Isolation: data.isolation,
    Repeats: data.replays.map((n) => `chk-${n}`).join(", "),
    "Adopted compactions": Object.keys(data.adopted).join(", "),
    "Accepted losses": data.losses.join("; "),
    "State left behind": Object.entries(data.left_behind).map(([uid,
      rows]) => `${uid} (${counted(rows, "row")})`).join(", "),
  } });
}
