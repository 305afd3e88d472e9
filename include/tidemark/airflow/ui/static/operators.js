// Where the time of a checkpoint went, operator by operator, and what its state is on disk.

import { bytes, C, color, count, counted, duration, h, Muted, Name, React } from "./ui.js";
import { Rows } from "./table.js";

// From the trigger to the last acknowledgement without the steps: the run waited, or an attempt failed before.
const WAIT = "waiting";
// Steps in their order: the name in the manifest, for people, and a tone.
const STEPS = [
  ["read", "read", "cyan"], ["process", "process", "purple"], ["fold", "fold", "blue"],
  ["dead_letters", "write dead letters", "red"], ["emitted", "write sink rows", "orange"],
  ["runs", "commit state", "green"], ["sinks", "commit dead letters", "pink"], ["outputs", "commit sinks", "yellow"],
  ["sent", "send", "teal"], ["gate", "gate", "muted"], ["fsync", "fsync", "fg"], [WAIT, "waiting", "bg"],
];
const fillOf = (tone) => color({ fg: "fg", muted: "fg.muted", bg: "border.emphasized" }[tone] || `${tone}.solid`);

// [[word, milliseconds, colour], …] in order; steps that a later release has added come last.
function stepsOf(timings) {
  const known = new Set(STEPS.map(([step]) => step));
  const more = Object.keys(timings).filter((step) => !known.has(step)).sort();
  return [...STEPS, ...more.map((step) => [step, step.replace(/_/g, " "), "gray"])]
    .filter(([step]) => timings[step] > 0).map(([step, word, tone]) => [word, timings[step], fillOf(tone)]);
}

const SQUARE = { display: "inline-block", width: 8, height: 8, marginRight: 4 };
const sum = (numbers) => numbers.reduce((all, n) => all + n, 0);

// A bar of all steps, as long as its share of `most`, and the steps in words.
function Bar({ timings, most, minW = "18rem" }) {
  const steps = stepsOf(timings);
  const total = sum(steps.map(([, ms]) => ms));
  if (total === 0) return h(Muted, { as: "span", fontSize: "xs" }, "no time");
  return h(C.Box, { minW, whiteSpace: "normal" },
    h(C.Flex, { align: "center", gap: 2 },
      h(C.Flex, { "aria-hidden": true, h: 3, gap: "1px", w: `calc((100% - 5rem) * ${most ? total / most : 0})`,
        minW: "2px", borderRadius: "sm", overflow: "hidden" },
      steps.map(([word, ms, fill]) => h("div", { key: word, title: `${word} ${duration(ms)}`,
        style: { background: fill, flex: `${ms} 0 0`, minWidth: 1 } }))),
      h("b", { style: { whiteSpace: "nowrap" } }, duration(total))),
    h(C.Flex, { wrap: "wrap", columnGap: 3, fontSize: "xs", color: "fg.muted" },
      steps.map(([word, ms, fill]) => h("span", { key: word, style: { whiteSpace: "nowrap" } },
        h("span", { "aria-hidden": true, style: { ...SQUARE, background: fill } }), `${word} ${duration(ms)}`))));
}

const NONE = "The checkpoint is not completed, so no operator has results.";

export function Operators({ data }) {
  if (data.tasks.length === 0) return h(Muted, null, NONE);
  const most = Math.max(0, ...data.tasks.map((t) => t.work_duration));
  const columns = [
    { title: "Operator", cell: (t) => h(C.Box, null, h("b", null, h(Name, { most: "12rem" }, t.uid)),
      h(Muted, { fontSize: "xs" }, t.kind)) },
    { title: "Time by step", cell: (t) => h(Bar, { timings: t.timings, most }) },
    { title: "Read", end: true, cell: (t) => count(t.read) },
    { title: "Applied", end: true, cell: (t) => count(t.applied) },
    { title: "Filtered", end: true, cell: (t) => count(t.filtered) },
    { title: "Rejected", end: true, cell: (t) => count(t.dead_lettered) },
    { title: "Keys", end: true, cell: (t) => count(t.keys) },
    { title: "Emitted", end: true, cell: (t) => count(t.emitted) },
    { title: "Incremental", end: true, cell: (t) => bytes(t.checkpointed_size) },
  ];
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Whole, { data }),
    h(Rows, { name: "Operators", columns, rows: data.tasks, keyOf: (t) => t.uid }),
    data.tasks.length > 1 && h(Spread, { tasks: data.tasks }));
}

// The checkpoint as a whole: the steps of all operators, those that operators share, and the time without a step.
function Whole({ data }) {
  const timings = {};
  for (const [step, ms] of Object.entries(data.timings)) {
    const name = step.split(".")[0];
    timings[name] = (timings[name] || 0) + ms;
  }
  const [total, work] = [data.end_to_end_duration, data.work_duration];
  if (total > work) timings[WAIT] = total - work;
  return h(C.Box, { "data-whole": true },
    h(C.Heading, { as: "h3", size: "xs", mb: 1 }, `${duration(total)} end to end, ${duration(work)} work`),
    h(Bar, { timings, most: Math.max(total, work), minW: 0 }),
    work > total && h(Muted, { fontSize: "xs" },
      "Operators worked at the same time, so their steps add up to more than the duration."));
}

const MEASURES = [["Time", "work_duration", duration], ["Records read", "read", count],
  ["Records rejected", "dead_lettered", count], ["Keys", "keys", count], ["Incremental", "checkpointed_size", bytes],
  ["Full", "state_size", bytes]];

// Flink's summary of a checkpoint, over operators in place of subtasks.
function Spread({ tasks }) {
  const rows = MEASURES.map(([name, field, format]) => ({ name, format, of: tasks.map((t) => t[field]) }));
  return h(C.Box, { maxW: "44rem" }, h(C.Heading, { as: "h3", size: "xs", mb: 1 },
    `Over ${count(tasks.length)} operators`), h(Rows, { name: "Over operators", rows, keyOf: (r) => r.name, columns: [
    { title: "Measure", cell: (r) => r.name },
    { title: "Min", end: true, cell: (r) => r.format(Math.min(...r.of)) },
    { title: "Avg", end: true, cell: (r) => r.format(sum(r.of) / r.of.length) },
    { title: "Max", end: true, cell: (r) => r.format(Math.max(...r.of)) },
  ] }));
}

const known = (n) => (n === null ? "–" : count(n));
const compacted = (c) => h(C.Box, { fontSize: "xs", whiteSpace: "normal", minW: "14rem" },
  `of ${c.checkpoint}: ${bytes(c.bytes_before)} to ${bytes(c.bytes_after)}, ${count(c.rows_before)} to ${
    counted(c.rows_after, "row")}${c.written_bytes === null ? "" : `, wrote ${bytes(c.written_bytes)}`}`);

const between = ({ min, max }) => (min === max ? count(min) : `${count(min)} – ${count(max)}`);
// The checkpoints whose changes a table has.
const written = ({ after, through }) => (through > after + 1 ? `chk-${after + 1} to chk-${through}` : `chk-${through}`);

const STORAGE = [
  { title: "Operator", cell: (t) => h("b", null, h(Name, { most: "12rem" }, t.uid)) },
  { title: "Incremental", end: true, cell: (t) => bytes(t.checkpointed_size) },
  { title: "Full", end: true, cell: (t) => bytes(t.state_size) },
  { title: "Rows", end: true, cell: (t) => count(t.rows) },
  { title: "Files", end: true, cell: (t) => count(t.files) },
  { title: "Live runs", end: true, cell: (t) => known(t.live_runs) },
  { title: "Level", end: true, cell: (t) => known(t.deepest_level) },
  { title: "Rows per file", end: true, cell: (t) => (t.run_rows ? between(t.run_rows) : "–") },
  { title: "Compaction", cell: (t) => (t.compaction ? compacted(t.compaction) : "–") },
  { title: "Tables", cell: (t) => h(C.Box, { fontSize: "xs" }, t.segments.length === 0 ? "none"
    : t.segments.map((s) => h("div", { key: `${s.path} ${s.version}` }, h("bdi", null, s.table),
      ` version ${count(s.version)}, ${written(s)}, ${counted(s.rows, "row")}, ${bytes(s.bytes)}`))) },
];

export function Storage({ data }) {
  if (data.tasks.length === 0) return h(Muted, null, NONE);
  return h(React.Fragment, null,
    h(Muted, { mb: 1 }, "Incremental: bytes that this checkpoint wrote. Full: bytes of all state that it names."),
    h(Rows, { name: "Storage", columns: STORAGE, rows: data.tasks, keyOf: (t) => t.uid }));
}
