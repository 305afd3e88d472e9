// The form's choice of a completed checkpoint, and the label above any of its fields.

import { C, checkpointsOf, counted, h, useAnswer, when } from "./ui.js";

// A completed checkpoint: type its id, or pick one of the newest.
export function AsOf({ pipeline, label, value, onChange, ...more }) {
  const answer = useAnswer(checkpointsOf(pipeline, { status: "COMPLETED", limit: 100 }), 0);
  const found = answer.data ? answer.data.history.filter((c) => !c.discarded) : [];
  const list = `tm-${label.replace(/\W+/g, "-")}`;
  return h(Labelled, { label },
    h(C.Input, { size: "sm", w: "9rem", "aria-label": label, list, pattern: "(chk-)?[1-9][0-9]{0,11}", maxLength: 16,
      title: "A number, or chk-17", value, onChange: (e) => onChange(e.target.value), ...more }),
    h("datalist", { id: list }, found.map((c) => h("option", { key: c.id, value: c.name }, labelOf(c)))));
}

const labelOf = (c) => [c.interval ? `until ${when(c.interval.end)}` : when(c.logical_time), c.timeline,
  counted(c.records, "record"), ...c.savepoints].join(" · ");

export const Labelled = ({ label, children }) => h(C.Flex,
  { as: "label", direction: "column", fontSize: "xs", minW: 0 }, h(C.Box, { as: "bdi", color: "fg.muted" }, label),
  children);
