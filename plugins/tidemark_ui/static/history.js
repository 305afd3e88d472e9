// The history: every checkpoint, completed, failed or under way; filtered, in pages, each with its details.

import { Actions } from "./actions.js";
import { Details } from "./details.js";
import { Answered, bytes, C, count, duration, Empty, h, Name, ours, Panel, Status, useAnswer, useEffect, useRef,
  useState, when } from "./ui.js";
import { Rows } from "./table.js";

const PAGE = 25;

export function History({ pipeline, facts, chosen, onChoose, timelines }) {
  const [filter, setFilter] = useState({ status: "", timeline: "", text: "", pinned: false });
  const [offset, setOffset] = useState(0);
  const typed = useLater(filter.text);
  const query = { ...filter, text: typed, pinned: filter.pinned || undefined, limit: PAGE,
    offset: offset || undefined };
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints"], query), 5000);
  const change = (part) => {
    setFilter({ ...filter, ...part });
    setOffset(0);
  };
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Filters, { filter, change, timelines }),
    h(Answered, { answer, what: "the history" }, (told) => h(Page,
      { told, offset, setOffset, chosen, onChoose, filtered: Object.values(filter).some(Boolean) })),
    chosen && h(Opened, { key: chosen, chosen, close: () => onChoose(null) },
      h(Details, { pipeline, checkpoint: chosen, dag: facts.dag_id, onCheckpoint: onChoose,
        actions: h(Actions, { pipeline, facts, checkpoint: chosen }) })));
}

// Below the table, hence out of sight: it comes into view with the keyboard's focus, and gives that back to its line.
function Opened({ chosen, close, children }) {
  const box = useRef(null);
  useEffect(() => {
    box.current.focus({ preventScroll: true });
    box.current.scrollIntoView({ block: "start" });
  }, []);
  const leave = () => {
    const line = document.querySelector(`tr[data-key="${chosen}"]`);
    close();
    if (line) line.focus();
  };
  return h(C.Box, { ref: box, tabIndex: -1, role: "region", "aria-label": `Checkpoint ${chosen}`, minH: "70vh" },
    h(Panel, { title: `chk-${chosen}`, "data-details": chosen,
      aside: h(C.Button, { size: "xs", variant: "outline", onClick: leave }, "Close") }, children));
}

function useLater(text) {
  const [later, setLater] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setLater(text), 300);
    return () => clearTimeout(timer);
  }, [text]);
  return later;
}

function Filters({ filter, change, timelines }) {
  return h(C.Flex, { gap: 2, wrap: "wrap", align: "center", role: "search" },
    h(C.Input, { size: "sm", w: "16rem", "aria-label": "Search ids, runs and savepoints",
      placeholder: "Id, DAG run or savepoint", maxLength: 250, value: filter.text,
      onChange: (e) => change({ text: e.target.value }) }),
    h(Choice, { label: "Status", value: filter.status, onChange: (status) => change({ status }),
      options: [["", "Any status"], ["COMPLETED", "Completed"], ["FAILED", "Failed"],
      ["IN_PROGRESS", "In progress"], ["DAMAGED", "Damaged"]] }),
    h(Choice, { label: "Timeline", value: filter.timeline, onChange: (timeline) => change({ timeline }),
      options: [["", "Any timeline"], ...timelines.map((t) => [t.timeline,
      t.is_live ? `${t.timeline} (live)` : t.timeline])] }),
    h(C.Flex, { as: "label", gap: 2, align: "center", fontSize: "sm" },
      h("input", { type: "checkbox", checked: filter.pinned,
        onChange: (e) => change({ pinned: e.target.checked }) }), "With a savepoint"));
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
  { title: "Duration", end: true, cell: (c) => (c.status === "COMPLETED" ? duration(c.end_to_end_duration) : "–") },
  { title: "Incremental", end: true, cell: (c) => (c.status === "COMPLETED" ? bytes(c.checkpointed_size) : "–") },
  { title: "Full", end: true, cell: (c) => (c.status === "COMPLETED" ? bytes(c.state_size) : "–") },
  { title: "Records", end: true, cell: (c) => (c.status === "COMPLETED" ? count(c.records) : "–") },
  { title: "Dead letters", end: true, cell: (c) => (c.status === "COMPLETED" ? count(c.dead_letters) : "–") },
  { title: "Gate", cell: (c) => (c.gate === null ? "–" : verdict(c.gate)) },
  { title: "Offsets", cell: (c) => h(Name, { most: "11rem" }, offsets(c)) },
  { title: "Lag", end: true, cell: (c) => count(c.pending_records) },
];

const verdict = ({ held, expectations }) => `${held === expectations ? "✓" : "✕"} ${held} of ${expectations}`;

const offsets = (c) => Object.entries(c.offsets).filter(([, o]) => o.span > 0).map(([topic,
  o]) => `${topic} ${count(o.span)}`).join(", ") || "none";

function Page({ told, offset, setOffset, chosen, onChoose, filtered }) {
  if (told.matching === 0) {
    return filtered
      ? h(Empty, { title: "No checkpoint fits" }, "Take another status, timeline or text.")
      : h(Empty, { title: "No checkpoints yet" },
        "Trigger the pipeline's DAG; the first checkpoint shows here as soon as it is planned.");
  }
  const last = Math.min(offset + PAGE, told.matching);
  const reading = told.indexed.read < told.indexed.of
    ? `, reading ${count(told.indexed.read)} of ${count(told.indexed.of)}` : "";
  return h(C.Box, null,
    h(Rows, { name: "History", columns: COLUMNS, rows: told.history, keyOf: (c) => c.id, chosen,
      onRow: (c) => onChoose(c.id === chosen ? null : c.id) }),
    h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm" },
      h(C.Button, { size: "xs", variant: "outline", disabled: offset === 0,
        onClick: () => setOffset(Math.max(0, offset - PAGE)) }, "Newer"),
      h("span", { role: "status" }, `${count(offset + 1)}–${count(last)} of ${count(told.matching)}${reading}`),
      h(C.Button, { size: "xs", variant: "outline", disabled: last >= told.matching,
        onClick: () => setOffset(offset + PAGE) }, "Older")));
}
