// The view "Compare": two restore points, operator by operator and sink by sink, before and after. The address holds
// both restore points: live, a checkpoint as in chk-16, a savepoint, or a timeline for its newest checkpoint.

import { BranchActions, Command, isOpen } from "./branch_actions.js";
import { KeyRows, SinkRows } from "./compared_rows.js";
import { Hidden } from "./records.js";
import { Rows } from "./table.js";
import { Answered, C, checkpointsOf, count, counted, Empty, h, Muted, Name, ours, Panel, shown, Trouble, useAnswer,
  useEffect, useState, when } from "./ui.js";

const OTHER = "other";

// It does not wait for the tree: sides that the address names are compared even if a timeline is damaged.
export function Compare({ pipeline, facts, tree: { data: branches, error }, place, onCheckpoint, onCompare }) {
  const { left, right } = place;
  const tree = branches || [];
  const alone = !left && Boolean(branches) && tree.reduce((sum, t) => sum + t.checkpoints, 0) < 2;
  const answer = useAnswer(alone ? null : ours(["pipelines", pipeline, "compare"], { left, right }), 0);
  const sides = answer.data || {};
  return h(C.Flex, { direction: "column", gap: 3, "data-compare": answer.data
    ? `${sides.left.name} ${sides.right.name}` : "" },
  h(Pickers, { key: `${left} ${right}`, pipeline, tree, onCompare, left: left || (sides.left ? sides.left.name : ""),
    right: right || "live" }),
  error && !branches && !answer.error && h(Trouble, { error }),
  alone || (!left && answer.error && answer.error.status === 404)
    ? h(Empty, { title: "Nothing to compare yet" }, "A comparison needs two checkpoints.")
    : h(Answered, { answer, what: "both sides" }, (data) => h(Compared, { key: `${data.left.id} ${data.right.id}`,
      pipeline, facts, tree, data, onCheckpoint, onCompare })));
}

// Nothing is read before the button is pressed: arrow keys walk through a list.
function Pickers({ pipeline, tree, left, right, onCompare }) {
  const pins = useAnswer(ours(["pipelines", pipeline, "savepoints"]), 30000);
  const newest = useAnswer(checkpointsOf(pipeline, { status: "COMPLETED", limit: 100 }), 30000);
  const [sides, setSides] = useState({ left, right });
  // The left side is known once the server has answered.
  useEffect(() => setSides({ left, right }), [left, right]);
  const groups = [
    ["Heads", tree.filter((t) => t.checkpoints > 0 && !t.newest_released).map((t) => (t.is_live
      ? ["live", `live (${t.newest})`]
      : [`timeline:${t.timeline}`, `${t.timeline} (${t.newest})`]))],
    ["Savepoints", (pins.data || []).map((s) => [`savepoint:${s.name}`, `${s.name} (${s.checkpoint})`])],
    ["Checkpoints, newest first", ((newest.data || {}).history || []).filter((c) => !c.discarded)
      .map((c) => [c.name, `${c.name}, ${when(c.trigger_timestamp)}, ${c.timeline}`])],
  ];
  const send = (event) => {
    event.preventDefault();
    onCompare(sides.left || null, sides.right);
  };
  const pick = (label, side) => h(Picker, { label, groups, value: sides[side],
    onChange: (value) => setSides({ ...sides, [side]: value }) });
  return h(C.Flex, { as: "form", onSubmit: send, gap: 2, wrap: "wrap", align: "flex-end", "aria-label": "Compare" },
    pick("From", "left"),
    h(C.Button, { size: "sm", variant: "outline", "aria-label": "Swap both sides",
      onClick: () => setSides({ left: sides.right, right: sides.left }) }, "⇄"),
    pick("To", "right"),
    h(C.Button, { type: "submit", size: "sm", colorPalette: "brand", disabled: !sides.right }, "Compare"));
}

// A list of restore points; the last entry is a field for any other.
function Picker({ label, groups, value, onChange }) {
  const [typing, setTyping] = useState(false);
  const known = groups.some(([, entries]) => entries.some(([name]) => name === value));
  const listed = typing ? OTHER : value;
  return h(C.Box, { fontSize: "sm", minW: 0, maxW: "100%" }, h("div", { "aria-hidden": true }, label),
    h(C.Flex, { gap: 1, wrap: "wrap" },
      h(C.NativeSelect.Root, { size: "sm", w: "18rem", maxW: "calc(100vw - 6rem)" },
        h(C.NativeSelect.Field, { "aria-label": label, value: listed, textOverflow: "ellipsis",
          onChange: (e) => {
          setTyping(e.target.value === OTHER);
          onChange(e.target.value === OTHER ? "" : e.target.value);
        } },
        !known && !typing && h("option", { value }, value || "the checkpoint before"),
        groups.map(([title, entries]) => entries.length > 0 && h("optgroup", { key: title, label: title },
          entries.map(([name, word]) => h("option", { key: name, value: name }, word)))),
        h("option", { value: OTHER }, "Another one…")),
        h(C.NativeSelect.Indicator)),
      typing && h(C.Input, { size: "sm", w: "12rem", "aria-label": `${label}, another one`, autoFocus: true,
        required: true, maxLength: 80, placeholder: "chk-16, or a name", value,
        onChange: (e) => onChange(e.target.value.trim()) })));
}

const differing = (found) => found.inserted + found.changed + found.deleted;
const isQuiet = (found) => found.status === "compared" && differing(found) === 0 && !found.unread
  && !(found.added || []).length && !(found.removed || []).length;

function Compared({ pipeline, facts, tree, data, onCheckpoint, onCompare }) {
  const { left, right } = data;
  const moved = data.operators.filter((o) => !isQuiet(o));
  const sinks = data.sinks.filter((s) => !isQuiet(s));
  const quiet = [...data.operators.filter(isQuiet).map((o) => o.uid),
    ...data.sinks.filter(isQuiet).map((s) => `sink ${s.sink}`)];
  const apart = data.ancestor !== left.id && data.ancestor !== right.id;
  return h(C.Flex, { direction: "column", gap: 3 },
    h(C.Flex, { gap: 3, wrap: "wrap", align: "center", fontSize: "sm" },
      h(Side, { side: left, onCheckpoint }), h("span", { "aria-hidden": true }, "→"),
      h(Side, { side: right, onCheckpoint }),
      apart && h(Muted, { as: "span" }, data.ancestor ? `common ancestor chk-${data.ancestor}` : "no common ancestor"),
      (left.asked !== left.name || right.asked !== right.name) && h(C.Button, { size: "2xs", variant: "outline",
        title: "The address then names these two checkpoints, and shows the same later",
        onClick: () => onCompare(left.name, right.name) }, `Keep ${left.name} and ${right.name} in the address`)),
    h(Repeated, { data, onCompare }),
    h(Summary, { data }),
    facts.may_see_payloads === false && moved.length + sinks.length > 0 && h(Hidden, { error: {
      what: `You may not see keys and rows of ${pipeline}`,
      next: "The setting TIDEMARK_PAYLOADS says who sees rows. By default: users who may trigger the DAG." } }),
    facts.may_trigger && h(Forks, { pipeline, tree, sides: [left, right] }),
    moved.map((o) => h(Operator, { key: o.uid, pipeline, operator: o, data, onCheckpoint })),
    sinks.map((s) => h(Sink, { key: s.uid, sink: s })),
    quiet.length > 0 && h(Muted, { "data-quiet": true, overflowWrap: "anywhere" },
      moved.length + sinks.length > 0 ? "No difference: " : "Compared: ",
      quiet.map((name, n) => h("span", { key: name }, n > 0 && ", ", h("bdi", null, name))), "."));
}

const Side = ({ side, onCheckpoint }) => h(C.Flex, { gap: 2, align: "center", wrap: "wrap", minW: 0 },
  side.asked !== side.name && h("b", null,
    h(Name, { most: "14rem" }, side.asked.replace(/^(savepoint|timeline):/, ""))),
  h(C.Button, { size: "xs", variant: "outline", "aria-label": `Open ${side.name}`,
    onClick: () => onCheckpoint(side.id) }, side.name),
  h(Muted, { as: "span" }, "on ", h(Name, { most: "10rem" }, side.timeline)),
  h(Muted, { as: "span" }, `as of ${when(side.logical_time)}`));

// The checkpoint of a backfill is best compared with the one that it repeats.
function Repeated({ data, onCompare }) {
  if (data.left.timeline === data.right.timeline) return null;
  const pairs = [[data.right, data.left, (r) => [`chk-${r}`, data.right.name]],
    [data.left, data.right, (r) => [data.left.name, `chk-${r}`]]];
  return pairs.map(([one, other, ids]) => {
    const repeated = one.replays[one.replays.length - 1];
    if (!repeated || repeated === other.id) return null;
    return h(C.Flex, { key: one.id, gap: 2, align: "center", wrap: "wrap", fontSize: "sm" },
      `${one.name} of the backfill repeats chk-${repeated}.`,
      h(C.Button, { size: "xs", variant: "outline", onClick: () => onCompare(...ids(repeated)) },
        `Compare ${one.name} with chk-${repeated}`));
  });
}

const total = (found, name) => found.reduce((sum, one) => sum + one[name], 0);

function Summary({ data }) {
  const { operators, sinks } = data;
  const parts = (found) => ["inserted", "changed", "deleted"].map((name) => `${count(total(found, name))} ${name}`)
    .join(", ");
  const open = [...operators, ...sinks].filter((one) => one.trouble || one.unread).length;
  const same = [...operators, ...sinks].every(isQuiet);
  return h(C.Box, { role: "status", "data-summary": true, fontSize: "sm" },
    same ? h(Empty, { title: "No difference" }, "All states and the rows of all sinks are equal.")
      : h(C.Text, { fontSize: "md" }, h("b", null, `Keys: ${parts(operators)}.`),
        sinks.some((s) => s.status !== "keeps_no_rows") && ` Rows of sinks: ${parts(sinks)}.`),
    open > 0 && h(C.Text, { color: "orange.fg" }, `${open === 1 ? "One part was" : `${count(open)} parts were`} not `
      + "compared completely: see below."));
}

// A fork whose head is compared can be promoted or closed from here.
function Forks({ tree, sides }) {
  const names = [...new Set(sides.map((side) => side.timeline))];
  const forks = tree.filter((t) => names.includes(t.timeline) && isOpen(t) && sides.some((s) => s.name === t.newest));
  return forks.map((t) => h(C.Flex, { key: t.timeline, gap: 2, align: "center", wrap: "wrap", fontSize: "sm" },
    "Fork ", h("b", null, h(Name, { most: "14rem" }, t.timeline)),
    h(BranchActions, { timeline: t.timeline })));
}

const TONES = [["inserted", "green", "+"], ["changed", "orange", "~"], ["deleted", "red", "−"]];

const Counts = ({ found }) => h(C.Flex, { gap: 1, wrap: "wrap" }, TONES.map(([name, tone, sign]) => found[name] > 0
  && h(C.Badge, { key: name, colorPalette: tone, [`data-${name}`]: found[name] },
    `${sign} ${count(found[name])} ${name}`)));

const FATES = {
  right_only: (o) => `Only the right side has it: ${counted(o.inserted, "key")}.`,
  left_only: (o) => `Only the left side has it: ${counted(o.deleted, "key")}.`,
  other_keys: () => "Both sides key it by other columns, so its keys cannot be compared.",
};

const COLUMNS = [
  { title: "Field", cell: (c) => h("b", null, h(Name, null, c.name)) },
  { title: "Keys in which it differs", end: true, cell: (c) => count(c.keys) },
  { title: "Sum of the differences", end: true, cell: (c) => (c.sum === null ? "–" : signed(c.sum)) },
  { title: "Largest", end: true, cell: (c) => (c.largest === null ? "–" : rounded(c.largest)) },
];

// The noise of floating point is left out.
const rounded = (value) => (typeof value === "number" && !Number.isInteger(value)
  ? value.toLocaleString("en-US", { maximumSignificantDigits: 6 }) : shown(value));
const signed = (value) => (typeof value === "number" && value > 0 ? `+${rounded(value)}` : rounded(value));

function Operator({ pipeline, operator, data, onCheckpoint }) {
  const [alone, setAlone] = useState(false);
  const query = { left: data.left.name, right: data.right.name, uid: operator.uid };
  const answer = useAnswer(alone ? ours(["pipelines", pipeline, "compare"], query) : null, 0);
  const found = (answer.data && answer.data.operators.find((o) => o.uid === operator.uid)) || operator;
  const again = (found.trouble || found.unread > 0) && !alone && h(C.Button, { size: "xs", variant: "outline",
    onClick: () => setAlone(true) }, "Compare this operator alone");
  return h(Panel, { title: h("bdi", null, found.uid), aside: h(Counts, { found }), "data-operator": found.uid },
    FATES[found.status] && h(C.Text, { fontSize: "sm", mb: 2 }, FATES[found.status](found)),
    found.trouble && h(NotCompared, { trouble: found.trouble }),
    found.unread > 0 && h(C.Text, { fontSize: "sm", color: "orange.fg", mb: 2 },
      `Not exact: the values of ${found.unread === 1 ? "1 more written key was" : `${count(found.unread)} more `
        + "written keys were"} not compared, because the time was over.`),
    again, answer.error && h(Trouble, { error: answer.error }),
    found.equal > 0 && h(Muted, { mb: 2 }, found.equal === 1
      ? "1 more key was written in between and has the same values."
      : `${count(found.equal)} more keys were written in between and have the same values.`),
    h(FieldNames, { word: "Fields of the right side only", names: found.added }),
    h(FieldNames, { word: "Fields of the left side only", names: found.removed }),
    found.columns.length > 0 && h(C.Box, { mb: 3, maxW: "52rem" }, h(Rows, { name: `Fields of ${found.uid} that differ`,
      columns: COLUMNS, rows: found.columns, keyOf: (c) => c.name })),
    found.rows.length > 0 && h(KeyRows, { found, total: differing(found), onCheckpoint }));
}

const FieldNames = ({ word, names }) => (names.length === 0 ? null : h(C.Text, { fontSize: "sm", mb: 2 }, `${word}: `,
  names.map((name, n) => h("span", { key: name }, n > 0 && ", ", h("bdi", null, name)))));

// Advice that is a command can be copied.
const NotCompared = ({ trouble }) => (/^tidemark /.test(trouble.next)
  ? h(C.Box, { mb: 2 }, h(Trouble, { error: { what: trouble.what } }), h(Command, { text: trouble.next }))
  : h(Trouble, { error: trouble }));

function Sink({ sink }) {
  const said = { right_only: "Only the right side has this sink.", left_only: "Only the left side has this sink.",
    keeps_no_rows: "Its rows are sent and not kept, so there is nothing to compare." }[sink.status];
  const title = h("span", null, "Sink ", h("bdi", null, sink.sink));
  return h(Panel, { title, aside: h(Counts, { found: sink }), "data-sink": sink.sink },
    said && h(C.Text, { fontSize: "sm", mb: 2 }, said),
    sink.trouble && h(NotCompared, { trouble: sink.trouble }),
    sink.equal > 0 && h(Muted, { mb: 2 },
      sink.equal === 1 ? "1 more row was emitted on both sides and is equal."
        : `${count(sink.equal)} more rows were emitted on both sides and are equal.`),
    sink.rows.length > 0 && h(SinkRows, { found: sink, total: differing(sink) }));
}
