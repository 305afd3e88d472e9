// Where the bytes are, what keeps them, and what retention would let go; then a button that lets it.

import { useDags } from "./actions.js";
import { Confirmed } from "./confirmed.js";
import { Answered, bytes, C, count, duration, Facts, h, Muted, Name, ours, Panel, useAnswer,
  useState } from "./ui.js";
import { Rows } from "./table.js";

export function Retention({ pipeline, facts }) {
  const [asked, setAsked] = useState(false);
  const answer = useAnswer(asked ? ours(["pipelines", pipeline, "retention-plan"]) : null, 0);
  const look = h(C.Button, { size: "xs", variant: "outline",
    onClick: () => (asked ? answer.again() : setAsked(true)) },
    asked ? "Look again" : "Look at every file");
  return h(Panel, { title: "Storage and retention", aside: look }, asked
    ? h(Answered, { answer, what: "every file" }, (plan) => h(Plan, { plan, pipeline, facts }))
    : h(Muted, null, "What is stored, what keeps it, and what retention would let go. Nothing is changed by looking."));
}

const KEEPERS = [
  { title: "Kept by", cell: (k) => h(Name, { most: "34rem" }, k.why) },
  { title: "Files", end: true, cell: (k) => count(k.files) },
  { title: "Bytes", end: true, cell: (k) => bytes(k.bytes) },
  { title: "By nothing else", end: true, cell: (k) => bytes(k.alone_bytes) },
];

const names = (all) => (all.length > 12 ? `${all.slice(0, 12).join(", ")} and ${all.length - 12} more`
  : all.join(", "));

function Plan({ plan, pipeline, facts }) {
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Facts, { facts: {
      Rule: plan.rule || "none is declared: every checkpoint is kept",
      Kept: `${bytes(plan.kept_bytes)} in ${count(plan.kept_files)} files`,
      "Would be released": names(plan.released) || "nothing",
      "Savepoints that end": names(plan.disposed),
      Free: `${bytes(plan.free_bytes)} in ${count(plan.free_files)} files`,
      "Would be deleted now": `${bytes(plan.due_bytes)} in ${count(plan.due_files)} files, free for `
        + duration(plan.grace_ms),
      "Old logs of tables": plan.log_files ? `${bytes(plan.log_bytes)} in ${count(plan.log_files)} files` : "",
      "Written by nobody of ours": plan.unknown_files ? `${count(plan.unknown_files)} files, which are left alone`
        : "",
    } }),
    plan.kept_by.length > 0 && h(Rows, { name: "What keeps files", columns: KEEPERS, rows: plan.kept_by,
      keyOf: (k) => k.why }),
    facts.may_trigger && h(Trigger, { pipeline }));
}

function Trigger({ pipeline }) {
  const dags = useDags(pipeline);
  const [open, setOpen] = useState(false);
  if (dags === null || !dags.retention) return null;
  if (!open) {
    return h(C.Box, null, h(C.Button, { size: "xs", variant: "outline", colorPalette: "red",
      onClick: () => setOpen(true) },
      "Run retention…"));
  }
  return h(Confirmed, { dag: dags.retention, title: "Run retention", word: "Run retention", danger: true, conf: {},
    close: () => setOpen(false),
    says: `Triggers DAG ${dags.retention.id}, for every pipeline that it names: what is told `
      + "above is released and deleted." });
}
