// Dead letters of the live timeline by operator and reason, some of them, and the requests to redrive them.

import { Command } from "./branch_actions.js";
import { useDags } from "./dags.js";
import { PlaceLink, useForm } from "./place.js";
import { Hidden, LetterPages } from "./records.js";
import { Answered, Badge, C, count, counted, Empty, h, inZone, Muted, Name, ours, Panel, percent, Time,
  useAnswer } from "./ui.js";
import { Rows } from "./table.js";

export const letterKey = (uid, reason) => `${uid}:${reason}`;
// A shell word.
const quoted = (text) => (/^[\w.-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

export function LettersView({ pipeline, facts, place, change }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "dead-letters"]), 30000);
  return h(Answered, { answer, what: "the dead letters" }, (data) => h(C.Flex, { direction: "column", gap: 3 },
    h(Panel, { title: "Dead letters of the live timeline" }, data.letters.length === 0 ? h(NoLetters)
      : h(Totals, { letters: data.letters, pipeline, facts, place, change })),
    h(Panel, { title: "Redrives" }, data.requests.length === 0 ? h(NoRequests)
      : h(Requests, { requests: data.requests, pipeline, facts }))));
}

const NoLetters = () => h(Empty, { title: "No dead letters" }, "A dead letter is a record that an operator could not "
  + "decode or apply. On the live timeline every record was applied or filtered.");

const NoRequests = () => h(Empty, { title: "No redrives" }, "A redrive gives an operator its dead letters again, as "
  + "the current code decodes them. After you have corrected the code, ask for it with Redrive… at a reason.");

function Totals({ letters, pipeline, facts, place, change }) {
  const open = letters.reduce((sum, t) => sum + t.letters, 0);
  const gone = letters.reduce((sum, t) => sum + t.redriven, 0);
  const chosen = place.operator ? letterKey(place.operator, place.reason) : null;
  const toggle = (t) => change(chosen === letterKey(t.uid, t.reason) ? { operator: "", reason: "" }
    : { operator: t.uid, reason: t.reason });
  const columns = [
    { title: "Operator and reason", cell: (t, stop) => h(C.Button, { ...stop, size: "2xs", variant: "outline",
      h: "auto", py: 1, maxW: "100%", "aria-expanded": chosen === letterKey(t.uid, t.reason),
      "data-reason": letterKey(t.uid, t.reason), onClick: () => toggle(t) },
    h("b", null, h(Name, { most: "9rem" }, t.uid)), h(Name, { most: "11rem" }, t.reason)) },
    { title: "Letters", end: true, cell: (t) => count(t.letters) },
    { title: "Of the records read", cell: (t) => h(Share, t) },
    { title: "Redriven", end: true, cell: (t) => count(t.redriven) },
    { title: "First and last", cell: (t) => h(Span, { t, pipeline }) },
    ...(facts.may_trigger && open > 0 ? [{ title: "Redrive", cell: (t) => t.letters > 0
      && h(Redrive, { t, pipeline }) }] : []),
  ];
  return h(C.Box, { "data-letters-total": open },
    h(C.Text, { fontSize: "sm", mb: 2 }, h("b", null, counted(open, "dead letter")),
      gone > 0 && `, ${count(gone)} more ${gone === 1 ? "was" : "were"} redriven`,
      ". A record that two operators rejected is two letters."),
    h(Rows, { name: "Dead letters by reason", columns, rows: letters, keyOf: (t) => letterKey(t.uid, t.reason), chosen,
      onRow: toggle }),
    chosen && letters.some((t) => letterKey(t.uid, t.reason) === chosen)
      && h(Sample, { key: chosen, pipeline, facts, uid: place.operator, reason: place.reason }));
}

// The letters among the records that the operator has read, as a bar and as a number.
function Share({ letters, read }) {
  const share = read > 0 ? letters / read : 0;
  return h(C.Flex, { align: "center", gap: 2 },
    h(C.Box, { "aria-hidden": true, w: "5rem", h: 2, borderRadius: "sm", bg: "bg.emphasized", overflow: "hidden" },
      h(C.Box, { h: "100%", bg: "red.solid", w: `${Math.min(100, 100 * share)}%`, minW: letters > 0 ? "2px" : 0 })),
    read > 0 ? `${percent(share)} of ${count(read)}` : "–");
}

function Span({ t, pipeline }) {
  const link = (name) => h(PlaceLink, { at: { pipeline, view: "checkpoint", checkpoint: Number(name.slice(4)) } },
    name);
  return t.first === t.last ? link(t.first) : h("span", null, link(t.first), " – ", link(t.last));
}

// The form of the redrive DAG, filled in; without such a DAG, the command.
function Redrive({ t, pipeline }) {
  const dags = useDags(pipeline);
  const { form, from, open } = useForm();
  if (dags === null || dags.error) return null;
  const key = letterKey(t.uid, t.reason);
  // The windows of a late record are closed, so a redrive rejects it again.
  if (t.reason === "late") return h(Muted, { as: "span" }, "A late record stays late.");
  if (!dags.redrive) {
    return h(Command, { text: `tidemark dead-letters redrive ${pipeline} ${quoted(t.uid)} --reason ${
      quoted(t.reason)}` });
  }
  return h(C.Button, { size: "2xs", variant: "outline", "aria-haspopup": "dialog",
    "aria-expanded": form === "redrive" && from === key, "aria-label": `Redrive… ${t.uid}: ${t.reason}`,
    onClick: () => open("redrive", key) }, "Redrive…");
}

const CHECKPOINT = (pipeline) => ({ title: "Checkpoint", cell: (r) => h(PlaceLink, { at: { pipeline,
  view: "checkpoint", checkpoint: Number(r.checkpoint.slice(4)) } }, r.checkpoint) });

function Sample({ pipeline, facts, uid, reason }) {
  return h(C.Box, { mt: 3 },
    h(C.Text, { fontSize: "sm", fontWeight: "semibold", overflowWrap: "anywhere" }, "Letters of ",
      h("bdi", null, uid), ": ", h("bdi", null, reason), ", the newest first"),
    facts.may_see_payloads === false ? h(Hidden, { error: { what: `You may not see records of ${pipeline}`,
      safe: "Their counts and reasons are shown.",
      next: "the setting TIDEMARK_PAYLOADS says who sees records. By default: users who may trigger the DAG." } })
      : h(LetterPages, { parts: ["pipelines", pipeline, "dead-letters", uid], query: { reason }, uid,
        first: CHECKPOINT(pipeline), name: `${pipeline}-${uid}-${reason.replace(/\W+/g, "_")}.jsonl` }));
}

const STATES = { waiting: ["blue", "…", "Waiting"], redriven: ["green", "✓", "Redriven"],
  unneeded: ["gray", "", "Not needed"], withdrawn: ["gray", "", "Withdrawn"], void: ["gray", "", "Void"] };
const WHY = { waiting: "the next checkpoint takes it up", unneeded: "its letters had been redriven already",
  withdrawn: "before a checkpoint took it up", void: "its timeline ended before" };

function Requests({ requests, pipeline, facts }) {
  const columns = [
    { title: "Request", cell: (r) => h(C.Flex, { gap: 2, align: "center" }, h("b", null, count(r.number)),
      h(State, { state: r.state })) },
    { title: "Operator", cell: (r) => h(Name, { most: "12rem" }, r.uid) },
    { title: "Letters", end: true, cell: (r) => count(r.letters) },
    { title: "Result", cell: (r) => h(Result, { r, pipeline, facts }) },
    { title: inZone("Requested"), cell: (r) => h(Time, { at: r.at }) },
    { title: "By", cell: (r) => h(Name, { most: "10rem" }, r.owner) },
    { title: "Note", cell: (r) => h(Name, { most: "20rem" }, r.note) },
  ];
  return h(Rows, { name: "Redrives", columns, rows: requests, keyOf: (r) => r.number });
}

function State({ state }) {
  const [tone, sign, word] = STATES[state] || ["gray", "", state];
  return h(Badge, { tone, sign, "data-request": state }, word);
}

function Withdraw({ number }) {
  const { form, from, open } = useForm();
  return h(C.Button, { size: "2xs", variant: "outline", colorPalette: "red", "aria-haspopup": "dialog",
    "aria-expanded": form === "withdraw" && from === String(number), "aria-label": `Withdraw… request ${number}`,
    onClick: () => open("withdraw", String(number)) }, "Withdraw…");
}

function Result({ r, pipeline, facts }) {
  if (r.state !== "redriven") {
    return h(C.Flex, { gap: 2, align: "center", wrap: "wrap" }, h(Muted, { as: "span" }, WHY[r.state]),
      r.state === "waiting" && facts.may_trigger && h(Withdraw, r));
  }
  const link = h(PlaceLink, { at: { pipeline, view: "checkpoint", checkpoint: Number(r.checkpoint.slice(4)) } },
    r.checkpoint);
  const again = r.rejected === null ? "" : r.rejected === 0 ? ", none rejected again"
    : `, ${count(r.rejected)} rejected again`;
  return h("span", { "data-result": `${r.redriven} ${r.rejected}` }, link,
    ` redrove ${counted(r.redriven, "letter")}${again}`);
}
