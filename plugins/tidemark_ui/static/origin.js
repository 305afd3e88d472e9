// From a row of state to its source: the checkpoint that changed it last, its DAG run, and the offsets it came from.

import { RunLink } from "./graph.js";
import { Answered, C, count, Empty, Facts, h, Name, ours, Panel, Trouble, useAnswer, useState, when } from "./ui.js";
import { Choice } from "./history.js";
import { Rows } from "./table.js";

export function Origin({ pipeline, dag, operators, onCheckpoint }) {
  const known = operators.filter((o) => o.keys.length > 0);
  const [uid, setUid] = useState(known.length ? known[0].uid : "");
  const [key, setKey] = useState([]);
  const [asked, setAsked] = useState([]);
  const operator = known.find((o) => o.uid === uid);
  if (!operator) return h(Empty, { title: "No operator has keys" }, "There is no row to look for.");
  const look = (event) => {
    event.preventDefault();
    setAsked([{ uid, key: operator.keys.map((_, n) => key[n] || "") }]);
  };
  const earlier = (question, parent) => setAsked([...asked, { ...question, checkpoint: parent }]);
  return h(C.Flex, { direction: "column", gap: 3 },
    h(C.Flex, { as: "form", onSubmit: look, gap: 2, wrap: "wrap", align: "flex-end" },
      h(Labelled, { label: "Operator" }, h(Choice, { label: "Operator", value: uid, onChange: setUid,
        options: known.map((o) => [o.uid, o.uid]) })),
      operator.keys.map((name, n) => h(Labelled, { key: `${uid} ${name}`, label: name },
        h(C.Input, { size: "sm", w: "14rem", "aria-label": name, maxLength: 1000, value: key[n] || "",
          onChange: (e) => setKey(operator.keys.map((_, at) => (at === n ? e.target.value : key[at] || ""))) }))),
      h(C.Button, { type: "submit", size: "sm", colorPalette: "brand" }, "Where does it come from?")),
    asked.length === 0
      ? h(Empty, { title: "Which row?" },
        "Give the key of a row of state. The row tells which checkpoint changed it last, "
        + "and that checkpoint's offsets hold the records.")
      : asked.map((question, n) => h(One, { key: n, pipeline, dag, question, last: n === asked.length - 1,
        onCheckpoint, earlier })));
}

const Labelled = ({ label, children }) => h(C.Flex,
  { as: "label", direction: "column", fontSize: "xs", color: "fg.muted" }, h("bdi", null, label), children);

function One({ pipeline, dag, question, last, onCheckpoint, earlier }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "state", question.uid, "origin"],
    { key: question.key.map((k) => k), checkpoint: question.checkpoint }), 0);
  if (answer.error && answer.error.status === 404 && question.checkpoint) {
    return h(Panel, { title: `Before chk-${question.checkpoint + 1}` },
      h(Trouble, { error: { what: `At chk-${question.checkpoint} there was no such row: the change above made it.`,
      next: "" } }));
  }
  return h(Answered, { answer, what: "the row" }, ({ row, changed, as_of: asOf }) => {
    const title = `${question.uid} at ${asOf}, changed last by ${changed.name}`;
    const columns = [
      { title: "Partition", cell: (r) => h(Name, null, r.partition) },
      { title: "Start (included)", end: true, cell: (r) => count(r.start) },
      { title: "End (excluded)", end: true, cell: (r) => count(r.end) },
    ];
    return h(Panel, { title, "data-origin": changed.checkpoint },
      h(C.Flex, { gap: 6, wrap: "wrap", align: "flex-start" },
        h(C.Box, { flex: "1 1 20rem", minW: 0 }, h(Facts, { facts: row })),
        h(C.Box, { flex: "1 1 20rem", minW: 0 },
          h(Facts, { facts: changed.known
            ? { Checkpoint: changed.name, Timeline: changed.timeline, "DAG run": changed.run,
              "Logical time": when(changed.logical_time) }
            : { Checkpoint: `${changed.name}, whose manifest is gone` } }),
          changed.ranges.length > 0 && h(Rows, { name: "Offsets that it came from", columns, rows: changed.ranges,
            keyOf: (r) => r.partition }),
          h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm", wrap: "wrap" },
            changed.known && h(C.Button, { size: "xs", variant: "outline",
              onClick: () => onCheckpoint(changed.checkpoint) }, `Open ${changed.name}`),
            last && changed.parent && h(C.Button, { size: "xs", variant: "outline",
              onClick: () => earlier(question, changed.parent) }, "The change before"),
            changed.known && dag && h(RunLink, { dag, run: changed.run, label: "Its DAG run" })))));
  });
}
