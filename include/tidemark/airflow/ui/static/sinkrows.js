// Rows of a sink: the operator and the DAG run that emitted them, and the record of each.

import { AsOf, Labelled } from "./asof.js";
import { Change, Changed } from "./change.js";
import { C, count, counted, h, Muted, Name, ours, Panel, React, useAnswer, useEffect, useState, when } from "./ui.js";
import { Choice } from "./history.js";
import { Payload, Records } from "./records.js";
import { Rows, Verbatim } from "./table.js";

export function SinkForm({ pipeline, operator, place, look }) {
  const columns = operator.sink_columns;
  const first = operator.keys.find((name) => columns.includes(name)) || columns[0];
  const named = place.where.map(pairOf).filter(([column]) => columns.includes(column));
  const given = named.length > 0 ? named : [[first, ""]];
  const [checkpoint, setCheckpoint] = useState(place.at);
  const [where, setWhere] = useState(given);
  // Back and Forward change the question.
  useEffect(() => {
    setCheckpoint(place.at);
    setWhere(given);
  }, [JSON.stringify(place.where), place.at]);
  const change = (at, pair) => setWhere(where.map((old, n) => (n === at ? pair : old)));
  const send = (event) => {
    event.preventDefault();
    look(`chk-${checkpoint.replace(/^chk-/, "")}`,
      where.filter(([, value]) => value !== "").map(([column, value]) => `${column}=${value}`));
  };
  return h(C.Flex, { as: "form", onSubmit: send, gap: 2, wrap: "wrap", align: "flex-end" },
    h(AsOf, { pipeline, label: "_checkpoint", value: checkpoint, onChange: setCheckpoint, required: true }),
    where.map(([column, value], n) => h(C.Flex, { key: n, gap: 1, align: "flex-end", wrap: "wrap" },
      h(Labelled, { label: "Column" }, h(Choice, { label: `Column ${n + 1}`, value: column,
        onChange: (name) => change(n, [name, value]), options: columns.map((name) => [name, name]) })),
      h(Labelled, { label: "Value" }, h(C.Input, { size: "sm", w: "12rem", "aria-label": `Value ${n + 1}`,
        maxLength: 1000, value, onChange: (e) => change(n, [column, e.target.value]) })))),
    where.length < 4 && h(C.Button, { size: "sm", variant: "outline",
      onClick: () => setWhere([...where, [columns[0], ""]]) }, "And another value"),
    h(C.Button, { type: "submit", size: "sm", colorPalette: "brand" }, "Where does it come from?"));
}

function pairOf(text) {
  const at = text.indexOf("=");
  return [text.slice(0, at), text.slice(at + 1)];
}

const placeOf = (row) => `${row.partition} ${row.offset}${row.path.map((n) => `.${n}`).join("")}`;

export function SinkRows({ pipeline, dag, question, onCheckpoint }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "sinks", question.sink, "origin"],
    { checkpoint: question.checkpoint, where: question.where, limit: 100 }), 0);
  return h(Payload, { answer, what: "rows of the sink" }, (data) => h(C.Flex, { direction: "column", gap: 3 },
    h(Panel, { title: `Emitted to ${data.sink} by ${data.uid} in ${data.changed.name}`,
      "data-origin": data.changed.checkpoint }, h(Changed, { changed: data.changed, dag, onCheckpoint })),
    h(Panel, { title: counted(data.rows.length, "row") },
      h(Table, { data, pipeline, dag, onCheckpoint }),
      data.more && h(Muted, { mt: 2 }, "There are more such rows: give another value."))));
}

function Table({ data, pipeline, dag, onCheckpoint }) {
  const [open, setOpen] = useState(null);
  const leads = (row) => data.changed.known && (!row.due || row.due.key.length > 0);
  const word = (row) => (row.due ? "Show its records" : "Show the record");
  const names = [...new Set(data.rows.flatMap((row) => Object.keys(row.row)))];
  const columns = [
    { title: "Source", cell: (row, stop) => h(C.Box, { as: "span", "data-row": placeOf(row) }, leads(row)
      ? h(C.Button, { ...stop, size: "2xs", variant: "outline", "aria-expanded": open === placeOf(row),
        "aria-label": `${word(row)} of ${placeOf(row)}`,
        onClick: () => setOpen(open === placeOf(row) ? null : placeOf(row)) }, word(row))
      : h(Muted, { as: "span" }, "none")) },
    ...names.map((name) => ({ title: name, cell: (row) => h(Verbatim, { value: row.row[name] }) })),
    { title: "Emitted for", cell: (row) => (row.due ? h(Due, row.due)
      : h("span", null, h(Name, null, row.partition), ` ${count(row.offset)}`)) },
  ];
  return h(Rows, { name: "Rows of the sink", columns, rows: data.rows, keyOf: placeOf, chosen: open,
    below: (row) => (row.due
      ? h(DueRecords, { due: row.due, pipeline, dag, changed: data.changed, onCheckpoint })
      : h(Records, { pipeline, checkpoint: data.changed.checkpoint, open: true,
        query: { partition: row.partition, start: row.offset, end: row.offset + 1 } })) });
}

const EVENTS = { window: "closed a window that ends at", timer: "fired a timer that was due at",
  pair: "joined a pair with the event time" };

const Due = ({ operator, what, at, key }) => h("span", null, h(Name, null, operator), ` ${EVENTS[what]} ${when(at)}`,
  key.length > 0 ? h(React.Fragment, null, ", key ", h("bdi", null, key.join(", ")))
    : ": no single record has this row");

// The records of a window: those of the checkpoint that closed it, and before it change by change.
function DueRecords({ due, pipeline, dag, changed, onCheckpoint }) {
  const [asked, setAsked] = useState([]);
  const question = { uid: due.operator, key: due.key };
  const earlier = (parent) => setAsked([...asked, parent]);
  return h(C.Flex, { direction: "column", gap: 2, "data-due": due.what },
    h(C.Flex, { gap: 2, wrap: "wrap" },
      h(Records, { pipeline, checkpoint: changed.checkpoint, query: question,
        word: `Show its records of ${changed.name}` }),
      asked.length === 0 && changed.parent && h(C.Button, { size: "xs", variant: "outline",
        onClick: () => earlier(changed.parent) }, "The records before")),
    asked.map((checkpoint, n) => h(Change, { key: checkpoint, pipeline, dag, question: { ...question, checkpoint },
      onCheckpoint, earlier: n === asked.length - 1 ? earlier : null })));
}
