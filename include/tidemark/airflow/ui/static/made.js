// What a run has made, in one line, with links.

import { Copy } from "./copying.js";
import { PlaceLink } from "./place.js";
import { Rows } from "./table.js";
import { bytes, C, count, counted, h, Muted, Name, ours, useAnswer } from "./ui.js";

export function Made({ pipeline, dag, run, outcome }) {
  const answer = useAnswer(ours(["dags", dag, "checkpoints"], { run_id: run }), 0);
  if (outcome.redrive) return h(Redriving, { pipeline, found: outcome.redrive });
  const { written } = outcome;
  if (isDry(outcome)) {
    return h(C.Box, { mt: 2 }, h(Muted, null, "A dry run: task plan found no obstacle, and nothing was changed."),
      written && h(Written, { written }));
  }
  if (written) return h(Written, { written, replace: true });
  if (outcome.kind === "retention") {
    return h(C.Box, { mt: 2 }, outcome.swept.map((one) => h(Swept, { key: one.pipeline, one })));
  }
  const one = (answer.data || []).find((data) => data.pipeline === pipeline);
  if (!one) return null;
  const checkpoints = [...new Set([...one.checkpoints, ...idsOf(outcome)])].sort((a, b) => b - a);
  const link = (key, at, ...words) => h(PlaceLink, { key, at: { pipeline, ...at }, replace: true }, ...words, " →");
  const lines = [
    ...checkpoints.map((n) => link(n, { view: "checkpoint", checkpoint: n }, `Created chk-${n}`)),
    ...one.savepoints.map((s) => link(s, { view: "timelines" }, "Created savepoint ", h(Name, null, s))),
    ...one.timelines.map((t) => link(t, { view: "timelines" }, "Began timeline ", h(Name, null, t))),
  ];
  return h(C.Flex, { "data-made": true, direction: "column", gap: 1, mt: 2, fontSize: "sm", align: "flex-start" },
    lines.length ? lines : h(Muted, null, NOTHING[outcome.kind] || "The run has ended."));
}

export const isDry = ({ kind, skipped, written }) => skipped.includes(kind) && !(written && written.checkpoint);

// The effect of a transform or a patch, operator by operator; and once it was executed, what to do with its fork.
export function Written({ written, replace = false }) {
  const { pipeline, source, timeline, checkpoint } = written;
  const names = [...new Set(written.states.flatMap((s) => Object.keys(s.counts)))];
  const columns = [{ title: "Operator", cell: (s) => h("b", null, h(Name, { most: "10rem" }, s.uid)) },
    ...names.map((name) => ({ title: words(name), end: true, cell: (s) => (name === "bytes" ? bytes : count)(
      s.counts[name]) }))];
  const compare = { view: "compare", left: source, right: checkpoint };
  const link = (at, ...text) => h(PlaceLink, { at: { pipeline, ...at }, replace }, ...text, " →");
  const command = `tidemark run ${pipeline} --timeline ${timeline}`;
  return h(C.Flex, { "data-written": timeline, direction: "column", gap: 1, mt: 2, fontSize: "sm", align: "flex-start",
    minW: 0 },
  written.states.length > 0 && h(C.Box, { maxW: "100%", mb: 1 },
    h(Rows, { name: `Keys, against ${source}`, columns, rows: written.states, keyOf: (s) => s.uid })),
  checkpoint && [
    link({ view: "checkpoint", checkpoint: Number(checkpoint.slice(4)) }, `Created ${checkpoint} on fork `,
      h(Name, { most: "14rem" }, timeline)),
    link(compare, `Compare with ${source}`),
    link({ ...compare, form: "promote", from: timeline }, "Promote…"),
    h(Muted, null, "To apply newer records to the fork, run it: ", h("bdi", null, h(C.Code, null, command)), " ",
      h(Copy, { text: () => command, what: "the command" })),
  ].map((line, n) => h("div", { key: n }, line)));
}

const words = (name) => (name[0].toUpperCase() + name.slice(1)).replace("_", " ");

const NOTHING = {
  checkpoint: "No checkpoint was due; the log of task plan has the reason.",
};

// What a redrive, or its dry run, has counted: letters that the current code would apply, and the others by reason.
function Redriving({ pipeline, found }) {
  const { letters, applied, refused, request } = found;
  const others = Object.entries(refused);
  return h(C.Box, { mt: 2, fontSize: "sm", "data-redrive": `${letters} ${applied}` },
    applied !== null && h(C.Text, null, `The current code would apply ${count(applied)} of ${
      counted(letters, "letter")}.`),
    others.length > 0 && h(C.Box, { as: "ul", pl: 5, listStyleType: "disc" }, others.map(([reason, n]) => h("li",
      { key: reason }, `${count(n)} not: `, h("bdi", null, reason)))),
    request === null ? h(Muted, null, "A dry run: nothing was changed.")
      : h(C.Text, null, `Request ${request}: the next checkpoint gives them to the operator. `, h(PlaceLink,
        { at: { pipeline, view: "letters" }, replace: true }, "Show its result →")));
}

// Checkpoints that the run has published, including those that an earlier run had planned.
export const idsOf = (outcome) => (outcome ? outcome.completed : []).map((name) => Number(name.slice(4)))
  .filter(Number.isInteger);

export const Swept = ({ one }) => h(C.Text, { fontSize: "sm", "data-swept": one.pipeline }, h("b", null,
  h(Name, null, one.pipeline)), `: released ${list(one.released)}; `,
one.disposed.length > 0 && `ended the savepoints ${list(one.disposed)}; `,
`deleted ${files(one.deleted_files, one.deleted_bytes)}`,
one.waiting_files > 0 ? `; ${files(one.waiting_files, one.waiting_bytes)} wait for the end of their grace period.`
  : ".");

const files = (n, size) => `${counted(n, "file")} (${bytes(size)})`;

export const list = (all, most = 12) => (all.length === 0 ? "nothing"
  : all.slice(0, most).join(", ") + (all.length > most ? ` and ${all.length - most} more` : ""));
