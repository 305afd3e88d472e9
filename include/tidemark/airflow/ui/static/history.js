// The history: all checkpoints, completed, failed or open; filtered, in pages. A row links to its checkpoint.

import { NO_FILTER, useTyped } from "./place.js";
import { Answered, bytes, C, count, duration, Empty, h, letters, Name, ours, Status, useAnswer, useEffect,
  when } from "./ui.js";
import { Rows } from "./table.js";

const PAGE = 25;

export function History({ pipeline, place, change, left, onChoose, timelines }) {
  const { status, timeline, text, pinned } = place;
  const offset = place.offset || 0;
  const query = { status, timeline, text, pinned: pinned ? true : undefined, limit: PAGE,
    offset: offset || undefined };
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints"], query), 5000);
  useReturn(left, Boolean(answer.data));
  const filtered = Object.keys(NO_FILTER).some((name) => name !== "offset" && place[name]);
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Filters, { filter: place, change: (part) => change({ offset: null, ...part }), timelines }),
    h(Answered, { answer, what: "the history" }, (data) => h(Page,
      { data, offset, setOffset: (next) => change({ offset: next || null }), onChoose, filtered })));
}

// Coming back from a checkpoint, the focus is on its row.
function useReturn(left, there) {
  useEffect(() => {
    const line = there && left && document.querySelector(`tr[data-key="${left}"]`);
    if (line) line.focus();
  }, [there]);
}

function Filters({ filter, change, timelines }) {
  const [typed, setTyped] = useTyped(filter.text, (text) => change({ text }));
  return h(C.Flex, { gap: 2, wrap: "wrap", align: "center", role: "search" },
    h(C.Input, { size: "sm", w: "16rem", "aria-label": "Search ids, runs and savepoints",
      placeholder: "Id, DAG run or savepoint", maxLength: 250, value: typed,
      onChange: (e) => setTyped(e.target.value) }),
    h(Choice, { label: "Status", value: filter.status, onChange: (status) => change({ status }),
      options: [["", "Any status"], ["COMPLETED", "Completed"], ["FAILED", "Failed"],
      ["IN_PROGRESS", "In progress"], ["DAMAGED", "Damaged"]] }),
    h(Choice, { label: "Timeline", value: filter.timeline, onChange: (timeline) => change({ timeline }),
      options: [["", "Any timeline"], ...timelines.map((t) => [t.timeline,
      t.is_live ? `${t.timeline} (live)` : t.timeline])] }),
    h(C.Flex, { as: "label", gap: 2, align: "center", fontSize: "sm" },
      h("input", { type: "checkbox", checked: Boolean(filter.pinned),
        onChange: (e) => change({ pinned: e.target.checked ? "true" : "" }) }), "With a savepoint"));
}

export const Choice = ({ label, value, onChange, options }) => h(C.NativeSelect.Root,
  { size: "sm", w: "auto", maxW: "min(20rem, 100%)" },
  h(C.NativeSelect.Field, { "aria-label": label, value, onChange: (e) => onChange(e.target.value) },
    options.map(([name, word]) => h("option", { key: name, value: name }, word))),
  h(C.NativeSelect.Indicator));

const COLUMNS = [
  { title: "Id", cell: (c) => h("b", null, c.name) },
  { title: "Status", cell: (c) => h(Status, c) },
  { title: "Timeline", cell: (c) => h(Name, { most: "7rem" }, c.timeline) },
  { title: "Savepoints", cell: (c) => c.savepoints.map((name) => h(C.Badge,
    { key: name, colorPalette: "pink", mr: 1 }, h(Name, { most: "10rem" }, name))) },
  { title: "Triggered (UTC)", cell: (c) => when(c.trigger_timestamp) },
  { title: "End to end", end: true, cell: (c) => (c.status === "COMPLETED" ? duration(c.end_to_end_duration) : "–") },
  { title: "Incremental", end: true, cell: (c) => (c.status === "COMPLETED" ? bytes(c.checkpointed_size) : "–") },
  { title: "Full", end: true, cell: (c) => (c.status === "COMPLETED" ? bytes(c.state_size) : "–") },
  { title: "Records", end: true, cell: (c) => (c.status === "COMPLETED" ? count(c.records) : "–") },
  { title: "Dead letters", end: true, cell: (c) => (c.status === "COMPLETED" ? letters(c) : "–") },
  { title: "Gate", cell: (c) => (c.gate === null ? "–" : verdict(c.gate)) },
  { title: "Offsets", cell: (c) => h(Name, { most: "11rem" }, offsets(c)) },
  { title: "Lag", end: true, cell: (c) => count(c.pending_records) },
];

const verdict = ({ held, expectations }) => `${held === expectations ? "✓" : "✕"} ${held} of ${expectations}`;

const offsets = (c) => Object.entries(c.offsets).filter(([, o]) => o.span > 0).map(([topic,
  o]) => `${topic} ${count(o.span)}`).join(", ") || "none";

function Page({ data, offset, setOffset, onChoose, filtered }) {
  if (data.matching === 0) {
    return filtered
      ? h(Empty, { title: "No checkpoint matches" }, "Choose another status, timeline or text.")
      : h(Empty, { title: "No checkpoints yet" },
        "Trigger the pipeline's DAG; the first checkpoint shows here as soon as it is planned.");
  }
  const last = Math.min(offset + PAGE, data.matching);
  const reading = data.indexed.read < data.indexed.of
    ? `, reading ${count(data.indexed.read)} of ${count(data.indexed.of)}` : "";
  return h(C.Box, null,
    h(Rows, { name: "History", columns: COLUMNS, rows: data.history, keyOf: (c) => c.id,
      onRow: (c) => onChoose(c.id) }),
    h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm" },
      h(C.Button, { size: "xs", variant: "outline", disabled: offset === 0,
        onClick: () => setOffset(Math.max(0, offset - PAGE)) }, "Newer"),
      h("span", { role: "status" }, `${count(offset + 1)}–${count(last)} of ${count(data.matching)}${reading}`),
      h(C.Button, { size: "xs", variant: "outline", disabled: last >= data.matching,
        onClick: () => setOffset(offset + PAGE) }, "Older")));
}
