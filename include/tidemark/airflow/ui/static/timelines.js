// The tree of timelines, and the savepoints.

import { Action, Disposal, useDags } from "./actions.js";
import { Answered, bytes, C, Empty, h, Muted, Name, ours, Panel, Trouble, useAnswer, useState, when } from "./ui.js";
import { Retention } from "./retention.js";
import { Rows } from "./table.js";

export function Timelines({ pipeline, facts, tree, onCheckpoint }) {
  const pins = useAnswer(ours(["pipelines", pipeline, "savepoints"]), 10000);
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Panel, { title: "Timelines" }, h(Branches, { tree, below: null, onCheckpoint })),
    h(Panel, { title: "Savepoints" }, h(Answered, { answer: pins, what: "savepoints" },
      (data) => h(Savepoints, { data, pipeline, facts, onCheckpoint, again: pins.again }))),
    h(Retention, { pipeline, facts }));
}

function Branches({ tree, below, onCheckpoint }) {
  const here = tree.filter((t) => t.parent === below);
  if (here.length === 0) return null;
  return h(C.Box, { as: "ul", listStyleType: "none", pl: below === null ? 0 : 5, ml: below === null ? 0 : 2,
    borderLeftWidth: below === null ? 0 : "2px", borderColor: "border" },
    here.map((t) => h(C.Box, { as: "li", key: t.timeline, py: 1 },
      h(Branch, { t, onCheckpoint }), h(Branches, { tree, below: t.timeline, onCheckpoint }))));
}

// The deeper a branch, the narrower it is.
const NARROW = { maxW: "min(22rem, 100%)" };

function Branch({ t, onCheckpoint }) {
  const began = t.began_at && h(Muted, { as: "span", overflowWrap: "anywhere" },
    `${t.why} at ${t.began_at}`, t.savepoint && ", savepoint ", t.savepoint && h("bdi", null, t.savepoint),
    t.began && `, ${when(t.began)}`);
  const fate = t.is_live ? "green" : t.fate === "fork" ? "blue" : "gray";
  const number = t.newest && Number(t.newest.slice(4));
  return h(C.Flex, { gap: 2, align: "center", wrap: "wrap", fontSize: "sm" },
    h(Name, { fontWeight: "bold", ...NARROW }, t.timeline),
    h(C.Badge, { colorPalette: fate }, t.fate),
    h(Muted, { as: "span" }, t.checkpoints === 1 ? "1 checkpoint" : `${t.checkpoints} checkpoints`),
    number && h(C.Button, { size: "2xs", variant: "outline", onClick: () => onCheckpoint(number) }, t.newest),
    began,
    t.note && h(Name, { color: "fg.muted", ...NARROW }, t.note),
    t.savepoints.map((s) => h(C.Badge, { key: s.name, colorPalette: "pink" }, h(Name, { most: "12rem" }, s.name),
      ` chk-${s.checkpoint}`)));
}

// The actions of a savepoint open a form below the table. A disposal needs no DAG.
const DEEDS = [["fork", "Fork…"], ["restore", "Restore…"], ["backfill", "Backfill…"], ["dispose", "Dispose…"]];

function Savepoints({ data, pipeline, facts, onCheckpoint, again }) {
  const dags = useDags(pipeline);
  const [open, setOpen] = useState({});
  if (data.length === 0) return h(Empty, { title: "No savepoints" },
    "A savepoint pins a checkpoint under a name, so that it stays: open a checkpoint in the history to create one.");
  const there = dags === null || dags.error ? {} : dags;
  // All buttons come at once: a click misses one that moves while others appear.
  const deeds = dags === null ? [] : DEEDS.filter(([kind]) => kind === "dispose" || there[kind]);
  const close = () => setOpen({});
  const toggle = (savepoint, kind) => setOpen(open.savepoint === savepoint && open.kind === kind ? {}
    : { savepoint, kind });
  const buttons = (s) => deeds.map(([kind, word]) => h(C.Button, {
    key: kind, size: "2xs", variant: "outline", ...(kind === "dispose" ? { colorPalette: "red" } : {}),
    "aria-expanded": open.savepoint === s.name && open.kind === kind,
    "aria-label": `${word} savepoint ${s.name}`, onClick: () => toggle(s.name, kind) }, word));
  const columns = [
    { title: "Name", cell: (s) => h("b", null, h(Name, null, s.name)) },
    { title: "Checkpoint", cell: (s) => h(C.Button,
      { size: "2xs", variant: "outline", onClick: () => onCheckpoint(Number(s.checkpoint.slice(4))) },
      s.checkpoint) },
    { title: "Action", cell: (s) => facts.may_trigger && h(C.Flex, { gap: 1 }, buttons(s)) },
    { title: "Timeline", cell: (s) => h(Name, { most: "11rem" }, s.timeline) },
    { title: "As of (UTC)", cell: (s) => when(s.logical_time) },
    { title: "Full", end: true, cell: (s) => bytes(s.full_bytes) },
    { title: "Owner", cell: (s) => h(Name, { most: "9rem" }, s.owner) },
    { title: "Created (UTC)", cell: (s) => when(s.created_at) },
    { title: "Expires (UTC)", cell: (s) => (s.expired ? `expired ${when(s.expires_at)}` : s.expires_at
      ? when(s.expires_at) : "never") },
    { title: "Note", cell: (s) => h(Name, null, s.drained ? `drained. ${s.note}` : s.note) },
  ];
  return h(C.Box, null,
    h(Rows, { name: "Savepoints", columns, rows: data, keyOf: (s) => s.name, chosen: open.savepoint }),
    facts.may_trigger && dags && dags.error && h(Trouble, { error: dags.error }),
    open.kind === "dispose" && h(Disposal, { key: open.savepoint, pipeline, name: open.savepoint, close,
      done: () => { close(); again(); } }),
    open.kind && h(Action, { key: `${open.kind} ${open.savepoint}`, pipeline, dags: there, kind: open.kind,
      begins: { savepoint: open.savepoint }, close }));
}
