// The last change of a row of state: its fields before and after, the checkpoint that made it, and the records.

import { Copy } from "./copying.js";
import { RunLink } from "./graph.js";
import { Payload, Records } from "./records.js";
import { Middle, Rows, Verbatim } from "./table.js";
import { C, count, Facts, h, inZone, Loading, Muted, Name, ours, Panel, runOf, Trouble, useAnswer, useState, when,
} from "./ui.js";

const originOf = (pipeline, { uid, key, checkpoint }) => ours(["pipelines", pipeline, "state", uid, "origin"],
  { key, checkpoint });

// question: {uid, key: [text], checkpoint: number or undefined}; `earlier(parent)` asks for the change before.
export function Change({ pipeline, dag, question, onCheckpoint, earlier }) {
  const answer = useAnswer(originOf(pipeline, question), 0);
  return h(Payload, { answer, what: "the row" }, (found) => h(Found, { found, pipeline, dag, question, onCheckpoint,
    earlier }));
}

function Found({ found, pipeline, dag, question, onCheckpoint, earlier }) {
  const { row, changed, as_of: asOf } = found;
  const { parent } = changed;
  const before = useAnswer(parent ? originOf(pipeline, { ...question, checkpoint: parent }) : null, 0);
  const made = !parent || (before.error && before.error.kind === "NotFoundError");
  const title = h(C.Box, { as: "span" }, h("bdi", null, question.uid), " ",
    h(C.Box, { as: "bdi", fontFamily: "mono" }, question.key.join(", ")), ` · changed by ${changed.name}`);
  return h(Panel, { title, "data-origin": changed.checkpoint, aside: h(Muted, null, `as of ${asOf}`) },
    h(C.Flex, { gap: 6, wrap: "wrap", align: "flex-start" },
      h(C.Box, { flex: "2 1 30rem", minW: 0 },
        changed.known && parent && !before.data && !before.error && h(Loading, { what: "the row before" }),
        changed.known && made && h(Muted, { mb: 1 }, "There was no such row before: this change created it."),
        before.error && !made && h(Trouble, { error: before.error, again: before.again }),
        h(Compared, { after: row, before: before.data && before.data.row, names: [parent && before.data
          ? `Before (${before.data.changed.name})` : "Before", `After (${changed.name})`], made }),
        h(C.Box, { mt: 2 }, h(Copy, { text: () => JSON.stringify(row), what: "the row as JSON", label: "Copy row" }))),
      h(C.Box, { flex: "1 1 20rem", minW: 0 }, h(Changed, { changed, dag, onCheckpoint },
        earlier && before.data && h(C.Button, { size: "xs", variant: "outline", onClick: () => earlier(parent) },
          "The change before")))),
    changed.ranges.length > 0 && h(C.Box, { mt: 3 },
      h(C.Heading, { as: "h3", size: "xs", mb: 1 }, `Records of the key in ${changed.name}`),
      h(Records, { pipeline, checkpoint: changed.checkpoint, query: { uid: question.uid, key: question.key } })));
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// One line per field; a changed one has a mark, a word and a bold name.
function Compared({ before, after, names, made }) {
  const [only, setOnly] = useState(false);
  const fields = [...new Set([...Object.keys(before || {}), ...Object.keys(after)])];
  const all = fields.map((name) => ({ name, was: before && before[name], is: after[name],
    changed: Boolean(before) && !same(before[name], after[name]) }));
  const changed = all.filter((f) => f.changed);
  const columns = [
    { title: "Field", cell: (f) => h(C.Box, { as: "span", fontWeight: f.changed ? "bold" : "normal",
      "data-changed": f.changed ? f.name : undefined },
    f.changed && h(C.Box, { as: "span", role: "img", "aria-label": "changed", color: "orange.fg", mr: 1 }, "●"),
    h(Name, { most: "14rem" }, f.name)) },
    ...(made ? [] : [{ title: names[0], cell: (f) => before && h(Verbatim, { value: f.was }) }]),
    { title: names[1], cell: (f) => h(Verbatim, { value: f.is, fontWeight: f.changed ? "bold" : "normal" }) },
  ];
  return h(C.Box, null,
    before && h(C.Flex, { gap: 3, align: "center", mb: 1, fontSize: "sm" },
      h("span", null, `${count(changed.length)} of ${count(all.length)} fields changed`),
      changed.length > 0 && changed.length < all.length && h(C.Button, { size: "2xs", variant: "ghost",
        "aria-pressed": only, onClick: () => setOnly(!only) }, only ? "Show all fields" : "Show changed fields only")),
    h(Rows, { name: "The row before and after", columns, rows: only ? changed : all, keyOf: (f) => f.name }));
}

const RANGES = [
  { title: "Partition", cell: (r) => h(Name, null, r.partition) },
  { title: "Start (included)", end: true, cell: (r) => count(r.start) },
  { title: "End (excluded)", end: true, cell: (r) => count(r.end) },
];

const SOME = 20;

// The checkpoint that changed or emitted a row.
export function Changed({ changed, dag, onCheckpoint, children }) {
  if (!changed.known) return h(Facts, { facts: { Checkpoint: `${changed.name}, whose manifest is gone` } });
  return h(C.Box, null,
    h(Facts, { facts: { Checkpoint: changed.name, Timeline: h(Middle, { most: 32 }, changed.timeline),
      "DAG run": h(Middle, { most: 40 }, runOf(changed.run)), [inZone("Logical time")]: when(changed.logical_time) } }),
    changed.ranges.length > 0
      ? h(Rows, { name: "Offsets that it came from", columns: RANGES, rows: changed.ranges,
        keyOf: (r) => r.partition })
      : h(Muted, { mt: 2 }, "It has read no offsets."),
    (changed.redriven || []).length > 0 && h(Rows, { name: "Dead letters that it redrove", columns: RANGES,
      rows: changed.redriven.slice(0, SOME), keyOf: (r) => `${r.partition} ${r.start}` }),
    (changed.redriven || []).length > SOME && h(Muted, null,
      `and ${count(changed.redriven.length - SOME)} more ranges`),
    h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm", wrap: "wrap" },
      h(C.Button, { size: "xs", variant: "outline", onClick: () => onCheckpoint(changed.checkpoint) },
        `Open ${changed.name}`),
      children,
      dag && h(RunLink, { dag, run: changed.run, label: "Its DAG run" })));
}
