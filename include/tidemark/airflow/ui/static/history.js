// The history: all checkpoints, completed, failed or open; filtered, sorted, in pages. A line leads to its checkpoint.

import { FILTERS, useTyped } from "./place.js";
import { Answered, bytes, C, Check, checkpointsOf, count, duration, Empty, h, inZone, letters, Muted, Name, runOf,
  Status, useAnswer, useEffect, useState, when } from "./ui.js";
import { Middle, Rows } from "./table.js";

const PAGE = 25;
const NEWEST = "-id";

export function History({ pipeline, place, change, left, onChoose, timelines }) {
  const { status, timeline, text, pinned, since, until } = place;
  const offset = place.offset || 0;
  const by = MEASURES.includes(place.sort.replace(/^-/, "")) ? place.sort : NEWEST;
  const query = { status, timeline, text, pinned: pinned ? true : undefined, since, until: until && dayAfter(until),
    sort: by === NEWEST ? undefined : by, limit: PAGE, offset: offset || undefined };
  const answer = useAnswer(checkpointsOf(pipeline, query), 5000);
  useReturn(left, Boolean(answer.data));
  const filtered = Object.keys(FILTERS).some((name) => !["offset", "sort"].includes(name) && place[name]);
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Filters, { filter: place, change: (part) => change({ offset: null, ...part }), timelines, filtered }),
    h(Answered, { answer, what: "the history" }, (data) => h(Page,
      { data, offset, setOffset: (next) => change({ offset: next || null }), onChoose, filtered,
        sort: { by, change: (next) => change({ sort: next === NEWEST ? "" : next, offset: null }) } })));
}

// The end of a range is the day that was chosen, as a whole.
function dayAfter(day) {
  const at = new Date(`${day}T00:00:00Z`);
  at.setUTCDate(at.getUTCDate() + 1);
  return Number.isNaN(at.getTime()) ? day : at.toISOString().slice(0, 10);
}

// Coming back from a checkpoint, the focus is on its line.
function useReturn(left, there) {
  useEffect(() => {
    const line = there && left && document.querySelector(`tr[data-key="${left}"] th button`);
    if (line) line.focus();
  }, [there]);
}

function Filters({ filter, change, timelines, filtered }) {
  const [typed, setTyped] = useTyped(filter.text, (text) => change({ text }));
  const cleared = { ...FILTERS, sort: filter.sort };
  return h(C.Flex, { gap: 2, wrap: "wrap", align: "center", role: "search" },
    h(C.Input, { size: "sm", w: "18rem", "aria-label": "Search ids, runs and savepoints",
      placeholder: "Id, DAG run, savepoint or failure", maxLength: 250, value: typed,
      onChange: (e) => setTyped(e.target.value) }),
    h(Choice, { label: "Status", value: filter.status, onChange: (status) => change({ status }),
      options: [["", "Any status"], ["COMPLETED", "Completed"], ["FAILED", "Failed"],
      ["IN_PROGRESS", "In progress"], ["DAMAGED", "Damaged"]] }),
    h(Choice, { label: "Timeline", value: filter.timeline, onChange: (timeline) => change({ timeline }),
      options: [["", "Any timeline"], ...timelines.map((t) => [t.timeline,
      t.is_live ? `${t.timeline} (live)` : t.timeline])] }),
    h(Day, { word: "From", value: filter.since, max: filter.until || undefined,
      onChange: (since) => change({ since }) }),
    h(Day, { word: "to", value: filter.until, min: filter.since || undefined, onChange: (until) => change({ until }) }),
    h(Check, { checked: Boolean(filter.pinned), onChange: (on) => change({ pinned: on ? "true" : "" }) },
      "With a savepoint"),
    filtered && h(C.Button, { size: "xs", variant: "ghost", onClick: () => change(cleared) }, "Clear filters"));
}

const Day = ({ word, value, onChange, ...more }) => h(C.Flex, { as: "label", gap: 1, align: "center", fontSize: "sm" },
  word, h(C.Input, { type: "date", size: "sm", w: "9.5rem", "aria-label": `Triggered ${word.toLowerCase()}, day in UTC`,
    title: "Day in UTC", value, onChange: (e) => onChange(e.target.value), ...more }));

export const Choice = ({ label, value, onChange, options, ...more }) => h(C.NativeSelect.Root,
  { size: "sm", w: "auto", maxW: "min(20rem, 100%)", ...more },
  h(C.NativeSelect.Field, { "aria-label": label, value, onChange: (e) => onChange(e.target.value) },
    options.map(([name, word]) => h("option", { key: name, value: name }, word))),
  h(C.NativeSelect.Indicator));

// A second, smaller line of a cell.
const second = (node) => node && h(Muted, { fontSize: "xs" }, node);
const isDone = (c) => c.status === "COMPLETED";
// Of a damaged plan nothing is known but its place.
const known = (cell) => (c) => (c.trigger_timestamp === 0 ? "–" : cell(c));
const done = (cell) => (c) => (isDone(c) ? cell(c) : "–");

// A run of Airflow's by its type and time: ids differ in their middle, which would be left out.
function Run({ id }) {
  const [, type, at] = /^(.+?)__(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:00)/.exec(id) || [];
  return at ? h(C.Box, { title: id }, type, second(when(at))) : h(Middle, { most: 26 }, id);
}

const columnsOf = (onChoose) => [
  { title: "Checkpoint", sort: "id", cell: (c, stop) => h(C.Box, null,
    h(C.Button, { ...stop, size: "2xs", variant: "outline", fontWeight: "bold", "data-key": c.id,
      onClick: () => onChoose(c.id) }, c.name),
    c.savepoints.map((name) => h(C.Badge, { key: name, colorPalette: "pink", ml: 1 },
      h(Name, { most: "8rem" }, name)))) },
  { title: "Status", cell: (c) => h(C.Box, null, h(Status, c), c.failure_reason && c.status !== "DAMAGED"
    && h(C.Text, { fontSize: "xs", color: "red.fg", title: c.failure_message }, h("bdi", null, c.failure_reason))) },
  { title: inZone("Interval"), cell: known((c) => (c.interval ? h(C.Box, null, `${when(c.interval.start)} –`,
    h("br"), when(c.interval.end)) : h(C.Box, null, when(c.logical_time), second("no interval")))) },
  { title: "Records", end: true, sort: "records", cell: done((c) => h(C.Box, null, count(c.records),
    c.dead_letters > 0 && second(`${letters(c)} rejected`))) },
  { title: "Size", end: true, sort: "checkpointed_size", cell: done((c) => h(C.Box, null,
    `+ ${bytes(c.checkpointed_size)}`, second(`of ${bytes(c.state_size)}`))) },
  { title: "Duration", end: true, sort: "end_to_end_duration", cell: done((c) => h(C.Box, null,
    duration(c.end_to_end_duration), second(`work ${duration(c.work_duration)}`))) },
  { title: "DAG run", cell: known((c) => h(Run, { id: runOf(c.origin) })) },
  { title: "Timeline", cell: (c) => h(Middle, { most: 22 }, c.timeline) },
  { title: inZone("Triggered"), sort: "trigger_timestamp", cell: known((c) => when(c.trigger_timestamp)) },
  { title: "Gate", cell: (c) => (c.gate === null ? "–" : verdict(c.gate)) },
  { title: "Lag", end: true, sort: "pending_records", cell: known((c) => count(c.pending_records)) },
];
const MEASURES = columnsOf().map((c) => c.sort).filter(Boolean);

const verdict = ({ held, expectations }) => `${held === expectations ? "✓" : "✕"} ${held} of ${expectations}`;

function Page({ data, offset, setOffset, onChoose, filtered, sort }) {
  if (data.matching === 0) {
    return filtered
      ? h(Empty, { title: "No checkpoint matches" }, "Choose another status, timeline, day or text.")
      : h(Empty, { title: "No checkpoints yet" },
        "Trigger the pipeline's DAG; the first checkpoint shows here as soon as it is planned.");
  }
  const reading = data.indexed.read < data.indexed.of
    ? `, reading ${count(data.indexed.read)} of ${count(data.indexed.of)}` : "";
  const last = Math.min(offset + PAGE, data.matching);
  const [back, on] = sort.by === NEWEST ? ["Newer", "Older"] : ["Previous", "Next"];
  return h(C.Box, null,
    h(Rows, { name: "History", columns: columnsOf(onChoose), rows: data.history, keyOf: (c) => c.id, sort,
      onRow: (c) => onChoose(c.id) }),
    h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm", wrap: "wrap" },
      h(C.Button, { size: "xs", variant: "outline", disabled: offset === 0,
        onClick: () => setOffset(Math.max(0, offset - PAGE)) }, back),
      h("span", { role: "status" }, `${count(Math.min(offset + 1, last))}–${count(last)} of ${
        count(data.matching)}${reading}`),
      h(C.Button, { size: "xs", variant: "outline", disabled: last >= data.matching,
        onClick: () => setOffset(offset + PAGE) }, on),
      data.matching > PAGE && h(Jump, { key: offset, at: Math.floor(offset / PAGE) + 1,
        pages: Math.ceil(data.matching / PAGE), go: (page) => setOffset((page - 1) * PAGE) })));
}

function Jump({ at, pages, go }) {
  const [typed, setTyped] = useState(String(at));
  const send = (event) => {
    event.preventDefault();
    go(Math.max(1, Math.min(pages, Number(typed) || at)));
  };
  return h(C.Flex, { as: "form", onSubmit: send, gap: 2, align: "center" }, "Page",
    h(C.Input, { size: "xs", type: "number", w: "5rem", min: 1, max: pages, "aria-label": "Page", value: typed,
      onChange: (e) => setTyped(e.target.value) }), `of ${count(pages)}`,
    h(C.Button, { type: "submit", size: "xs", variant: "outline", disabled: Number(typed) === at }, "Go"));
}
