// The timelines as a graph and as a tree, and the savepoints.

import { BranchActions, isOpen } from "./branch_actions.js";
import { useDags } from "./dags.js";
import { useForm } from "./place.js";
import { Answered, bytes, C, counted, Empty, h, inFull, inZone, Muted, Name, ours, Panel, Trouble, useAnswer,
  when } from "./ui.js";
import { Rows } from "./table.js";
import { TimelineGraph } from "./timeline_graph.js";

export function Timelines({ answer, ...more }) {
  const all = { direction: "column", gap: 3 };
  // Savepoints can be read where a timeline is damaged.
  if (answer.data === undefined && answer.error && answer.error.status) {
    return h(C.Flex, all, h(Trouble, { error: answer.error, again: answer.again }), h(Pinned, more));
  }
  return h(Answered, { answer, what: "the timelines" }, (tree) => h(C.Flex, all,
    h(Panel, { title: "Timelines" }, h(TimelineGraph, { tree, ...more }),
      h(C.Box, { mt: 3 }, h(Branches, { tree, below: null, ...more }))),
    h(Pinned, more)));
}

function Pinned({ pipeline, ...more }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "savepoints"]), 10000);
  return h(Panel, { title: "Savepoints" }, h(Answered, { answer, what: "savepoints" },
    (data) => h(Savepoints, { data, pipeline, ...more })));
}

function Branches({ tree, below, ...more }) {
  const here = tree.filter((t) => t.parent === below);
  if (here.length === 0) return null;
  return h(C.Box, { as: "ul", listStyleType: "none", pl: below === null ? 0 : 5, ml: below === null ? 0 : 2,
    borderLeftWidth: below === null ? 0 : "2px", borderColor: "border" },
    here.map((t) => h(C.Box, { as: "li", key: t.timeline, py: 1 },
      h(Branch, { t, ...more }), h(Branches, { tree, below: t.timeline, ...more }))));
}

// The deeper a branch, the narrower it is.
const NARROW = { maxW: "min(22rem, 100%)" };

function Branch({ t, facts, onCheckpoint, onCompare }) {
  const began = t.began_at && h(Muted, { as: "span", overflowWrap: "anywhere" },
    `${t.why} at ${t.began_at}`, t.savepoint && ", savepoint ", t.savepoint && h("bdi", null, t.savepoint),
    t.began && `, ${inFull(t.began)}`);
  const fate = t.is_live ? "green" : t.fate === "fork" ? "blue" : "gray";
  const number = t.newest && Number(t.newest.slice(4));
  return h(C.Flex, { gap: 2, align: "center", wrap: "wrap", fontSize: "sm" },
    h(Name, { fontWeight: "bold", ...NARROW }, t.timeline),
    h(C.Badge, { colorPalette: fate }, t.fate),
    h(Muted, { as: "span" }, counted(t.checkpoints, "checkpoint")),
    number && h(C.Button, { size: "2xs", variant: "outline", onClick: () => onCheckpoint(number) }, t.newest),
    began,
    t.note && h(Name, { color: "fg.muted", ...NARROW }, t.note),
    t.savepoints.map((s) => h(C.Badge, { key: s.name, colorPalette: "pink" }, h(Name, { most: "12rem" }, s.name),
      ` chk-${s.checkpoint}`)),
    !t.is_live && number && !t.newest_released && h(C.Button, { size: "2xs", variant: "outline",
      "aria-label": `Compare with live: ${t.timeline}`,
      onClick: () => onCompare("live", `timeline:${t.timeline}`) }, "Compare with live"),
    facts.may_trigger && isOpen(t) && h(BranchActions, { timeline: t.timeline,
      kinds: number ? ["promote", "close"] : ["close"] }));
}

// The actions of a savepoint open a form in a dialog. A disposal needs no DAG.
const DEEDS = [["fork", "Fork…"], ["restore", "Restore…"], ["backfill", "Backfill…"], ["transform", "Transform…"],
  ["patch", "Patch…"], ["dispose", "Dispose…"]];

function Savepoints({ data, pipeline, facts, onCheckpoint, onCompare }) {
  const dags = useDags(pipeline);
  const { form, from, open } = useForm();
  if (data.length === 0) return h(Empty, { title: "No savepoints" },
    "A savepoint pins a checkpoint under a name, so that it stays: open a checkpoint in the history to create one.");
  const there = dags === null || dags.error ? {} : dags;
  // All buttons come at once: a click misses one that moves while others appear.
  const deeds = dags === null ? [] : DEEDS.filter(([kind]) => kind === "dispose" || there[kind]);
  const buttons = (s) => deeds.map(([kind, word]) => h(C.Button, {
    key: kind, size: "2xs", variant: "outline", ...(kind === "dispose" ? { colorPalette: "red" } : {}),
    "aria-haspopup": "dialog", "aria-expanded": from === s.name && form === kind,
    "aria-label": `${word} savepoint ${s.name}`, onClick: () => open(kind, s.name) }, word));
  const columns = [
    { title: "Name", cell: (s) => h("b", null, h(Name, null, s.name)) },
    { title: "Checkpoint", cell: (s) => h(C.Button,
      { size: "2xs", variant: "outline", onClick: () => onCheckpoint(Number(s.checkpoint.slice(4))) },
      s.checkpoint) },
    { title: "Compare", cell: (s) => h(C.Button, { size: "2xs", variant: "outline",
      "aria-label": `Compare savepoint ${s.name} with live`,
      onClick: () => onCompare(`savepoint:${s.name}`, "live") }, "With live") },
    ...(facts.may_trigger ? [{ title: "Action", cell: (s) => h(C.Flex, { gap: 1, wrap: "wrap", w: "15rem" },
      buttons(s)) }] : []),
    { title: "Timeline", cell: (s) => h(Name, { most: "11rem" }, s.timeline) },
    { title: inZone("As of"), cell: (s) => when(s.logical_time) },
    { title: "Full", end: true, cell: (s) => bytes(s.full_bytes) },
    { title: "Owner", cell: (s) => h(Name, { most: "9rem" }, s.owner) },
    { title: inZone("Created"), cell: (s) => when(s.created_at) },
    { title: inZone("Expires"), cell: (s) => (s.expired ? `expired ${when(s.expires_at)}` : s.expires_at
      ? when(s.expires_at) : "never") },
    { title: "Note", cell: (s) => h(Name, null, s.drained ? `drained. ${s.note}` : s.note) },
  ];
  return h(C.Box, null,
    h(Rows, { name: "Savepoints", columns, rows: data, keyOf: (s) => s.name, chosen: form ? from : null }),
    facts.may_trigger && dags && dags.error && h(Trouble, { error: dags.error }));
}
