// Bytes, the reasons that keep them, and the next sweep of retention, with a button that triggers it.

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
    : h(Muted, null, "Stored files, why they are kept, and the next sweep of retention. Looking changes nothing."));
}

const KEEPERS = [
  // Not cut: the reason follows the name, which may be long.
  { title: "Kept by", cell: (k) => h(Name, { most: "34rem", minW: "14rem", whiteSpace: "normal",
    overflowWrap: "anywhere" }, k.why) },
  { title: "Files", end: true, cell: (k) => count(k.files) },
  { title: "Bytes", end: true, cell: (k) => bytes(k.bytes) },
  { title: "By nothing else", end: true, cell: (k) => bytes(k.alone_bytes) },
];

const names = (all) => (all.length > 12 ? `${all.slice(0, 12).join(", ")} and ${all.length - 12} more`
  : all.join(", "));

// The bytes as one bar; its parts are in the order of the legend.
function Bar({ plan }) {
  const pinned = plan.kept_by.filter((k) => k.why.startsWith("savepoint "))
    .reduce((sum, k) => sum + k.alone_bytes, 0);
  const parts = [["Referenced", plan.kept_bytes - pinned, "blue.solid"], ["Pinned by one savepoint alone", pinned,
    "purple.solid"], ["Reclaimable", plan.free_bytes, "orange.solid"]];
  const all = Math.max(1, parts.reduce((sum, [, n]) => sum + n, 0));
  const share = (n) => `${((100 * n) / all).toFixed(n && n < all / 100 ? 1 : 0)} %`;
  return h(C.Box, { "data-storage": true },
    h(C.Flex, { "aria-hidden": true, h: 3, borderRadius: "sm", overflow: "hidden", bg: "bg.emphasized", gap: "2px" },
      parts.filter(([, n]) => n > 0).map(([name, n, tone]) => h(C.Box, { key: name, bg: tone, flex: `${n} 1 0`,
        minW: "3px" }))),
    h(C.Flex, { as: "ul", listStyleType: "none", gap: 4, wrap: "wrap", mt: 1, fontSize: "sm" },
      parts.map(([name, n, tone]) => h(C.Flex, { as: "li", key: name, gap: 1, align: "center" },
        h(C.Box, { "aria-hidden": true, w: 2.5, h: 2.5, borderRadius: "2px", bg: tone }),
        `${name} ${bytes(n)} (${share(n)})`))));
}

function Plan({ plan, pipeline, facts }) {
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Bar, { plan }),
    h(Facts, { facts: {
      Rule: plan.rule || "none is declared: every checkpoint is kept",
      Kept: `${bytes(plan.kept_bytes)} in ${count(plan.kept_files)} files`,
      "Would be released": names(plan.released) || "nothing",
      "Savepoints that end": names(plan.disposed),
      Free: `${bytes(plan.free_bytes)} in ${count(plan.free_files)} files`,
      "Would be deleted now": `${bytes(plan.due_bytes)} in ${count(plan.due_files)} files, free for `
        + duration(plan.grace_ms),
      "Old logs of tables": plan.log_files ? `${bytes(plan.log_bytes)} in ${count(plan.log_files)} files` : "",
      "Not written by Tidemark": plan.unknown_files ? `${count(plan.unknown_files)} files, which are left alone`
        : "",
      "Damaged: restore from a backup, or give up": plan.damaged
        .map((d) => `${d.checkpoint}, which stops ${d.blocks.join(", ")}: ${d.why}`).join("; "),
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
    says: `Triggers DAG ${dags.retention.id}, for every pipeline that it names. It releases and `
      + "deletes the checkpoints and files listed above." });
}
