// The source of a row: of state by its key, of a sink by its checkpoint and values.

import { RunLink } from "./graph.js";
import { Answered, C, count, Empty, Facts, h, Muted, Name, ours, Panel, Trouble, useAnswer, useState,
  when } from "./ui.js";
import { Choice } from "./history.js";
import { Records } from "./records.js";
import { SinkForm, SinkRows } from "./sinkrows.js";
import { Rows } from "./table.js";

export function Origin({ pipeline, dag, operators, onCheckpoint }) {
  const states = operators.filter((o) => o.keys.length > 0);
  const sinks = operators.flatMap((o) => [o, ...o.more_sinks.map((more) => ({ ...o, ...more }))])
    .filter((o) => o.sink_columns.length > 0);
  const options = [...states.map((o) => [`state ${o.uid}`, `state ${o.uid}`]),
    ...sinks.map((o) => [`sink ${o.sink}`, `sink ${o.sink}`])];
  const [chosen, setChosen] = useState(options.length ? options[0][0] : "");
  const [asked, setAsked] = useState([]);
  if (options.length === 0) return h(Empty, { title: "No operator has keys" }, "There is no row to look for.");
  const state = states.find((o) => `state ${o.uid}` === chosen);
  const sink = sinks.find((o) => `sink ${o.sink}` === chosen);
  const earlier = (question, parent) => setAsked([...asked, { ...question, checkpoint: parent }]);
  const choose = (name) => {
    setChosen(name);
    setAsked([]);
  };
  return h(C.Flex, { direction: "column", gap: 3 },
    h(C.Flex, { gap: 2, wrap: "wrap", align: "flex-end" },
      h(Labelled, { label: "Row of" }, h(Choice, { label: "Row of", value: chosen, onChange: choose, options })),
      state && h(KeyForm, { key: chosen, operator: state, look: (key) => setAsked([{ uid: state.uid, key }]) }),
      sink && h(SinkForm, { key: chosen, operator: sink, look: (question) => setAsked([question]) })),
    asked.length === 0
      ? h(Empty, { title: "Which row?" },
        sink ? "Give the row's _checkpoint, and one or several of its values. "
          + "Each row that has them leads to its record."
          : "Give the key of a row of state. The page shows which checkpoint changed it last, "
            + "and that checkpoint's offsets hold the records.")
      : asked.map((question, n) => (sink
        ? h(SinkRows, { key: JSON.stringify(question), pipeline, dag, question, onCheckpoint })
        : h(One, { key: n, pipeline, dag, question, last: n === asked.length - 1, onCheckpoint, earlier }))));
}

function KeyForm({ operator, look }) {
  const [key, setKey] = useState([]);
  const send = (event) => {
    event.preventDefault();
    look(operator.keys.map((_, n) => key[n] || ""));
  };
  return h(C.Flex, { as: "form", onSubmit: send, gap: 2, wrap: "wrap", align: "flex-end" },
    operator.keys.map((name, n) => h(Labelled, { key: name, label: name },
      h(C.Input, { size: "sm", w: "14rem", "aria-label": name, maxLength: 1000, value: key[n] || "",
        onChange: (e) => setKey(operator.keys.map((_, at) => (at === n ? e.target.value : key[at] || ""))) }))),
    h(C.Button, { type: "submit", size: "sm", colorPalette: "brand" }, "Where does it come from?"));
}

export const Labelled = ({ label, children }) => h(C.Flex,
  { as: "label", direction: "column", fontSize: "xs", color: "fg.muted" }, h("bdi", null, label), children);

export function One({ pipeline, dag, question, last, onCheckpoint, earlier }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "state", question.uid, "origin"],
    { key: question.key.map((k) => k), checkpoint: question.checkpoint }), 0);
  if (answer.error && answer.error.status === 404 && question.checkpoint) {
    return h(Panel, { title: `Before chk-${question.checkpoint + 1}` },
      h(Trouble, { error: { what: `At chk-${question.checkpoint} there was no such row: the change above made it.`,
      next: "" } }));
  }
  return h(Answered, { answer, what: "the row" }, ({ row, changed, as_of: asOf }) => h(Panel,
    { title: `${question.uid} at ${asOf}, changed last by ${changed.name}`, "data-origin": changed.checkpoint },
    h(C.Flex, { gap: 6, wrap: "wrap", align: "flex-start" },
      h(C.Box, { flex: "1 1 20rem", minW: 0 }, h(Facts, { facts: row })),
      h(C.Box, { flex: "1 1 20rem", minW: 0 }, h(Changed, { changed, dag, onCheckpoint },
        last && changed.parent && h(C.Button, { size: "xs", variant: "outline",
          onClick: () => earlier(question, changed.parent) }, "The change before")))),
    changed.ranges.length > 0 && h(C.Box, { mt: 3 }, h(Records, { pipeline, checkpoint: changed.checkpoint,
      query: { uid: question.uid, key: question.key } }))));
}

const RANGES = [
  { title: "Partition", cell: (r) => h(Name, null, r.partition) },
  { title: "Start (included)", end: true, cell: (r) => count(r.start) },
  { title: "End (excluded)", end: true, cell: (r) => count(r.end) },
];

const SOME = 20;

// The checkpoint that changed or emitted a row.
export function Changed({ changed, dag, onCheckpoint, children }) {
  if (!changed.known) return h(Facts, { facts: { Checkpoint: `${changed.name}, whose manifest is gone` } });
  return h(C.Box, null,
    h(Facts, { facts: { Checkpoint: changed.name, Timeline: changed.timeline, "DAG run": changed.run,
      "Logical time": when(changed.logical_time) } }),
    changed.ranges.length > 0
      ? h(Rows, { name: "Offsets that it came from", columns: RANGES, rows: changed.ranges,
        keyOf: (r) => r.partition })
      : h(Muted, { mt: 2 }, "It has read no offsets."),
    (changed.redriven || []).length > 0 && h(Rows, { name: "Dead letters that it redrove", columns: RANGES,
      rows: changed.redriven.slice(0, SOME), keyOf: (r) => `${r.partition} ${r.start}` }),
    (changed.redriven || []).length > SOME && h(Muted, null, `and ${changed.redriven.length - SOME} more ranges`),
    h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm", wrap: "wrap" },
      h(C.Button, { size: "xs", variant: "outline", onClick: () => onCheckpoint(changed.checkpoint) },
        `Open ${changed.name}`),
      children,
      dag && h(RunLink, { dag, run: changed.run, label: "Its DAG run" })));
}
