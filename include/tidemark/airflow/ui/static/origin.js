// The source of a row: of state by its key, of a sink by its checkpoint and values. The address holds the question.

import { AsOf, Labelled } from "./asof.js";
import { Change } from "./change.js";
import { C, Empty, h, useEffect, useState } from "./ui.js";
import { Choice } from "./history.js";
import { Hidden } from "./records.js";
import { SinkForm, SinkRows } from "./sinkrows.js";

const NOTHING = { uid: "", sink: "", key: [], where: [], at: "" };

export function Origin({ pipeline, facts, operators, place, change, onCheckpoint }) {
  const states = operators.filter((o) => o.keys.length > 0);
  const sinks = operators.flatMap((o) => [o, ...o.more_sinks.map((more) => ({ ...o, ...more }))])
    .filter((o) => o.sink_columns.length > 0);
  const options = [...states.map((o) => [`state ${o.uid}`, `state ${o.uid}`]),
    ...sinks.map((o) => [`sink ${o.sink}`, `sink ${o.sink}`])];
  if (options.length === 0) return h(Empty, { title: "No operator has keys" }, "There is no row to look for.");
  if (facts.may_see_payloads === false) return h(Hidden, { error: { what: `You may not see rows of ${pipeline}`,
    safe: "All other views show counts, offsets, sizes and reasons.",
    next: "The setting TIDEMARK_PAYLOADS says who sees rows. By default: users who may trigger the DAG." } });
  const wanted = place.sink ? `sink ${place.sink}` : place.uid ? `state ${place.uid}` : "";
  const chosen = options.some(([name]) => name === wanted) ? wanted : options[0][0];
  const state = states.find((o) => `state ${o.uid}` === chosen);
  const sink = sinks.find((o) => `sink ${o.sink}` === chosen);
  const number = Number((/^(?:chk-)?([1-9][0-9]{0,11})$/.exec(place.at) || [])[1]) || undefined;
  const known = !wanted || chosen === wanted;
  const question = !known ? null : sink ? number && { sink: sink.sink, checkpoint: number, where: place.where }
    : place.key.length === state.keys.length && { uid: state.uid, key: place.key, checkpoint: number };
  const choose = (name) => change({ ...NOTHING, ...(name.startsWith("sink ") ? { sink: name.slice(5) }
    : { uid: name.slice(6) }) });
  return h(C.Flex, { direction: "column", gap: 3 },
    h(C.Flex, { gap: 2, wrap: "wrap", align: "flex-end" },
      h(Labelled, { label: "Row of" }, h(Choice, { label: "Row of", value: chosen, onChange: choose, options })),
      state && h(KeyForm, { key: chosen, pipeline, operator: state, place, look: (key, at) => change({ ...NOTHING,
        uid: state.uid, key, at }) }),
      sink && h(SinkForm, { key: chosen, pipeline, operator: sink, place, look: (at, where) => change({ ...NOTHING,
        sink: sink.sink, at, where }) })),
    !known && h(Empty, { title: `There is no ${wanted}` }, "Choose a state or a sink above."),
    known && !question && h(Empty, { title: "Which row?" }, sink
      ? "Give the row's _checkpoint, and one or several of its values. Each row that has them leads to its record."
      : "Give the key of a row of state. The page shows which checkpoint changed it last, and the records that did."),
    question && sink && h(SinkRows, { key: JSON.stringify(question), pipeline, dag: facts.dag_id, question,
      onCheckpoint }),
    question && state && h(Change, { key: JSON.stringify(question), pipeline, dag: facts.dag_id, question,
      onCheckpoint, earlier: (parent) => change({ at: `chk-${parent}` }) }));
}

function KeyForm({ pipeline, operator, place, look }) {
  const given = operator.keys.map((_, n) => place.key[n] || "");
  const [key, setKey] = useState(given);
  const [at, setAt] = useState(place.at);
  // Back and Forward change the question.
  useEffect(() => {
    setKey(given);
    setAt(place.at);
  }, [JSON.stringify(place.key), place.at]);
  const send = (event) => {
    event.preventDefault();
    look(key, at);
  };
  return h(C.Flex, { as: "form", onSubmit: send, gap: 2, wrap: "wrap", align: "flex-end" },
    operator.keys.map((name, n) => h(Labelled, { key: name, label: name },
      h(C.Input, { size: "sm", w: "14rem", "aria-label": name, maxLength: 1000, required: true, value: key[n],
        onChange: (e) => setKey(key.map((old, i) => (i === n ? e.target.value : old))) }))),
    h(AsOf, { pipeline, label: "As of", value: at, onChange: setAt, placeholder: "newest" }),
    h(C.Button, { type: "submit", size: "sm", colorPalette: "brand" }, "Where does it come from?"));
}
