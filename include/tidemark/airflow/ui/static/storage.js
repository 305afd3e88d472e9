// Bytes and the reasons that keep them, from a look at every file.

import { Answered, bytes, C, count, counted, duration, Facts, h, Muted, Name, ours, Panel, useAnswer,
  useState } from "./ui.js";
import { list } from "./made.js";
import { Rows } from "./table.js";

export function Storage({ pipeline }) {
  const [asked, setAsked] = useState(false);
  const answer = useAnswer(asked ? ours(["pipelines", pipeline, "retention-plan"]) : null, 0);
  const look = h(C.Button, { size: "xs", variant: "outline",
    onClick: () => (asked ? answer.again() : setAsked(true)) }, asked ? "Rescan" : "Scan storage");
  return h(Panel, { title: "Storage", aside: look }, asked
    ? h(Answered, { answer, what: "every file" }, (plan) => h(Plan, { plan }))
    : h(Muted, null, "Files and bytes, and what keeps them. A scan lists every file and changes nothing."));
}

const KEEPERS = [
  // Not cut: the reason follows the name, which may be long.
  { title: "Kept by", cell: (k) => h(Name, { most: "34rem", minW: "14rem", whiteSpace: "normal",
    overflowWrap: "anywhere", title: k.why }, keeperOf(k.why)) },
  { title: "Files", end: true, cell: (k) => count(k.files) },
  { title: "Bytes", end: true, cell: (k) => bytes(k.bytes) },
  { title: "By nothing else", end: true, cell: (k) => bytes(k.alone_bytes) },
];

// The rule and the newest checkpoints in words; of an id of 32 digits the first ones.
const keeperOf = (why) => (why === "newest" ? "the newest checkpoint of each timeline"
  : /^keep_/.test(why) ? `the rule ${why}` : why.replace(/\b([0-9a-f]{8})[0-9a-f]{24}\b/g, "$1…"));

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

const filesOf = (n) => counted(n, "file");

function Plan({ plan }) {
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Bar, { plan }),
    h(Facts, { facts: {
      Kept: `${bytes(plan.kept_bytes)} in ${filesOf(plan.kept_files)}`,
      "Free, after the next retention": plan.free_files === 0 ? "nothing"
        : `${bytes(plan.free_bytes)} in ${filesOf(plan.free_files)}`,
      "Deleted by it at once": plan.due_files === 0 ? `nothing: no file has been free for ${duration(plan.grace_ms)}`
        : `${bytes(plan.due_bytes)} in ${filesOf(plan.due_files)}, whose grace period of ${
          duration(plan.grace_ms)} is over`,
      "Old logs of tables": plan.log_files ? `${bytes(plan.log_bytes)} in ${filesOf(plan.log_files)}` : "",
      "Not written by Tidemark": plan.unknown_files ? `${filesOf(plan.unknown_files)}, left alone`
        : "",
      "Damaged: restore from a backup, or give up": plan.damaged
        .map((d) => `${d.checkpoint}, which stops ${list(d.blocks)}: ${d.why}`).join("; "),
    } }),
    plan.kept_by.length > 0 && h(Rows, { name: "What keeps files", columns: KEEPERS, rows: plan.kept_by,
      keyOf: (k) => k.why }));
}
