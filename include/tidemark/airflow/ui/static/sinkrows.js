// Rows of a sink: the operator and the DAG run that emitted them, and the record of each.

import { Answered, C, count, Facts, h, Muted, Name, ours, Panel, useAnswer, useState, when } from "./ui.js";
import { Choice } from "./history.js";
import { Changed, Labelled, One } from "./origin.js";
import { Records } from "./records.js";

export function SinkForm({ operator, look }) {
  const columns = operator.sink_columns;
  const first = operator.keys.find((name) => columns.includes(name)) || columns[0];
  const [checkpoint, setCheckpoint] = useState("");
  const [where, setWhere] = useState([[first, ""]]);
  const change = (at, pair) => setWhere(where.map((old, n) => (n === at ? pair : old)));
  const send = (event) => {
    event.preventDefault();
    const filled = where.filter(([, value]) => value !== "").map(([column, value]) => `${column}=${value}`);
    look({ sink: operator.sink, checkpoint: Number(checkpoint.replace(/^chk-/, "")), where: filled });
  };
  return h(C.Flex, { as: "form", onSubmit: send, gap: 2, wrap: "wrap", align: "flex-end" },
    h(Labelled, { label: "_checkpoint" }, h(C.Input, { size: "sm", w: "7rem", "aria-label": "_checkpoint",
      required: true, pattern: "(chk-)?[1-9][0-9]{0,11}", maxLength: 16, title: "A number, or chk-17",
      value: checkpoint, onChange: (e) => setCheckpoint(e.target.value) })),
    where.map(([column, value], n) => h(C.Flex, { key: n, gap: 1, align: "flex-end" },
      h(Labelled, { label: "Column" }, h(Choice, { label: `Column ${n + 1}`, value: column,
        onChange: (name) => change(n, [name, value]), options: columns.map((name) => [name, name]) })),
      h(Labelled, { label: "Value" }, h(C.Input, { size: "sm", w: "12rem", "aria-label": `Value ${n + 1}`,
        maxLength: 1000, value, onChange: (e) => change(n, [column, e.target.value]) })))),
    where.length < 4 && h(C.Button, { size: "sm", variant: "outline",
      onClick: () => setWhere([...where, [columns[0], ""]]) }, "And another value"),
    h(C.Button, { type: "submit", size: "sm", colorPalette: "brand" }, "Where does it come from?"));
}

export function SinkRows({ pipeline, dag, question, onCheckpoint }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "sinks", question.sink, "origin"],
    { checkpoint: question.checkpoint, where: question.where, limit: 20 }), 0);
  return h(Answered, { answer, what: "rows of the sink" }, (data) => h(C.Flex, { direction: "column", gap: 3 },
    h(Panel, { title: `Emitted to ${data.sink} by ${data.uid} in ${data.changed.name}`,
      "data-origin": data.changed.checkpoint }, h(Changed, { changed: data.changed, dag, onCheckpoint })),
    data.rows.map((row) => h(Row, { key: `${row.partition} ${row.offset} ${row.path}`, row, pipeline, dag,
      changed: data.changed, onCheckpoint })),
    data.more && h(Muted, null, "There are more such rows: give another value.")));
}

function Row({ row, pipeline, dag, changed, onCheckpoint }) {
  const query = { partition: row.partition, start: row.offset, end: row.offset + 1 };
  return h(Panel, { "data-row": `${row.partition} ${row.offset}` },
    h(C.Flex, { gap: 6, wrap: "wrap", align: "flex-start" },
      h(C.Box, { flex: "1 1 20rem", minW: 0 }, h(Facts, { facts: row.row })),
      h(C.Box, { flex: "1 1 20rem", minW: 0 },
        row.due ? h(Due, row.due) : h(C.Text, { fontSize: "sm", mb: 2 }, "Emitted for the record at ",
          h("b", null, h(Name, null, row.partition), ` ${count(row.offset)}`)))),
    changed.known && !row.due && h(C.Box, { mt: 2 },
      h(Records, { pipeline, checkpoint: changed.checkpoint, query, word: "Show the record" })),
    changed.known && row.due && row.due.key.length > 0
      && h(DueRecords, { due: row.due, pipeline, dag, changed, onCheckpoint }));
}

const EVENTS = { window: "closed a window that ends at", timer: "fired a timer that was due at",
  pair: "joined a pair with the event time" };

const Due = ({ operator, what, at, key }) => h(C.Box, { fontSize: "sm", mb: 2 },
  h(C.Text, null, h("b", null, h(Name, null, operator)), ` ${EVENTS[what]} `, h("b", null, `${when(at)} UTC`)),
  key.length > 0 ? h(C.Text, null, "Key: ", h("bdi", null, key.join(", ")))
    : h(Muted, null, "No single record has this row."));

// The records of a window: those of the checkpoint that closed it, and before it change by change.
function DueRecords({ due, pipeline, dag, changed, onCheckpoint }) {
  const [asked, setAsked] = useState([]);
  const question = { uid: due.operator, key: due.key };
  const earlier = (_, parent) => setAsked([...asked, parent]);
  return h(C.Flex, { direction: "column", gap: 2, mt: 2, "data-due": due.what },
    h(C.Flex, { gap: 2, wrap: "wrap" },
      h(Records, { pipeline, checkpoint: changed.checkpoint, query: question,
        word: `Show its records of ${changed.name}` }),
      asked.length === 0 && changed.parent && h(C.Button, { size: "xs", variant: "outline",
        onClick: () => earlier(null, changed.parent) }, "The records before")),
    asked.map((checkpoint, n) => h(One, { key: checkpoint, pipeline, dag, question: { ...question, checkpoint },
      last: n === asked.length - 1, onCheckpoint, earlier })));
}
