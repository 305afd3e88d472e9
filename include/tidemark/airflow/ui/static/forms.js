// The forms behind the buttons; each shows a preview first.

import { Confirmed, Field } from "./confirmed.js";
import { Answered, C, count, duration, Facts, h, ours, useAnswer, useState } from "./ui.js";
import { Choice } from "./history.js";

export function SavepointForm({ pipeline, begins, ...more }) {
  const { checkpoint } = begins;
  const [name, setName] = useState("");
  const [note, setNote] = useState("");
  const [expires, setExpires] = useState("");
  const conf = { pipeline, name, checkpoint: checkpoint ? `chk-${checkpoint}` : null, note: note || null,
    expires: expires || null };
  const of = checkpoint ? `chk-${checkpoint}` : "the newest checkpoint";
  const title = `Create a savepoint of ${of}`;
  return h(Confirmed, { ...more, title, word: "Create savepoint", conf, ready: name !== "" },
    h(Field, { label: "Name", value: name, maxLength: 63, required: true, autoFocus: true,
      pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]*", onChange: (e) => setName(e.target.value),
      help: "Letters, digits, '_', '.' and '-'. A name is used once." }),
    h(Field, { label: "Note", value: note, maxLength: 1000, onChange: (e) => setNote(e.target.value) }),
    h(Field, { label: "Expires", value: expires, maxLength: 40, onChange: (e) => setExpires(e.target.value),
      help: "30d, 12h, or a time as in 2030-01-31T00:00Z. Empty: never." }));
}

export const list = (all, most = 12) => (all.length === 0 ? "none"
  : all.slice(0, most).join(", ") + (all.length > most ? ` and ${all.length - most} more` : ""));

// A restore point, {checkpoint: 17} or {savepoint: "june"}: as the forms of DAGs name it, and as text.
const named = ({ checkpoint, savepoint }) => (savepoint ? { savepoint } : { checkpoint: `chk-${checkpoint}` });
const word = ({ checkpoint, savepoint }) => savepoint || `chk-${checkpoint}`;

export function RestoreForm({ pipeline, begins, ...more }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "restore-plan"], begins), 0);
  const [sinks, setSinks] = useState(false);
  const conf = { pipeline, ...named(begins), restore_sinks: sinks, execute: true };
  return h(Confirmed, { ...more, title: `Restore ${word(begins)}`, word: `Restore ${word(begins)}`,
    danger: true, conf, ready: Boolean(answer.data),
    says: "A new timeline begins at the checkpoint and becomes live. Nothing is copied or deleted. "
      + "Task plan of the run checks files, code and Kafka before anything changes." },
  h(Answered, { answer, what: "the plan" }, (plan) => h(Facts, { facts: {
    "Ends timeline": plan.closes,
    "Stays on it": list(plan.left),
    "Read again": Object.entries(plan.read_again)
      .map(([tp, range]) => `${tp} [${range.start}, ${range.end})`).join(", ") || "nothing",
    Drained: plan.drained ? "the pipeline was stopped for good with it" : null,
  } })),
  h(C.Flex, { as: "label", gap: 2, fontSize: "sm", align: "center" },
    h("input", { type: "checkbox", checked: sinks, onChange: (e) => setSinks(e.target.checked) }),
    "Delta sinks go back with the state"));
}

const MODES = [["compare", "Compare only: the fork stays a fork"], ["approve", "Promote after approval"],
  ["promote", "Promote at once"]];

export function BackfillForm({ pipeline, begins, ...more }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "backfill-plan"], begins), 0);
  const [mode, setMode] = useState("compare");
  const conf = { pipeline, ...named(begins), mode };
  return h(Confirmed, { ...more, title: `Backfill from ${word(begins)}`, word: "Backfill",
    danger: mode === "promote", conf, ready: Boolean(answer.data),
    says: "Forks at the checkpoint and repeats the checkpoints since with the current code, while the live "
      + "timeline continues. Then both states are compared." },
  h(Answered, { answer, what: "the plan" }, (plan) => h(Facts, { facts: {
    "Will be repeated": plan.repeats.length === 0 ? "nothing: it is the live head" : list(plan.repeats),
    "Records to read": plan.repeats.length ? count(plan.records) : null,
    "Expected time": plan.repeats.length ? `about ${duration(plan.work_duration)}, as long as they took` : null,
  } })),
  h(Choice, { label: "What then", value: mode, onChange: setMode, options: MODES }));
}

// Begins a timeline next to the live one. Without a checkpoint it asks for the restore point.
export function ForkForm({ pipeline, begins, ...more }) {
  const given = begins.checkpoint || begins.savepoint ? word(begins) : null;
  const [source, setSource] = useState(given || "");
  const [name, setName] = useState("");
  const [note, setNote] = useState("");
  const conf = { pipeline, source, name, note: note || null };
  return h(Confirmed, { ...more, title: given ? `Fork ${given}` : "Fork", word: "Fork", conf,
    ready: source !== "" && name !== "",
    says: "Begins a separate timeline. Nothing is copied, nothing is sent to Kafka, and the live timeline continues. "
      + "Task plan of the run checks the name, files and code." },
  !given && h(Field, { label: "From", value: source, maxLength: 63, required: true, autoFocus: true,
    onChange: (e) => setSource(e.target.value), help: "A savepoint, or a checkpoint as in chk-17." }),
  h(Field, { label: "Name", value: name, maxLength: 63, required: true, autoFocus: Boolean(given),
    pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]*", onChange: (e) => setName(e.target.value),
    help: "Of the timeline, as in what-if. A name is used once." }),
  h(Field, { label: "Note", value: note, maxLength: 1000, onChange: (e) => setNote(e.target.value) }));
}

// Asks the next checkpoint to give an operator its dead letters again.
export function RedriveForm({ pipeline, begins, ...more }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "dead-letters"]), 0);
  const [chosen, setChosen] = useState(null);
  const [late, setLate] = useState(false);
  const [note, setNote] = useState("");
  const { letters = [], requests = [] } = answer.data || {};
  const open = letters.filter((t) => t.letters > 0);
  const of = open[chosen ?? 0];
  const conf = of && { pipeline, uid: of.uid, reason: of.reason, out_of_order: late, note: note || null,
    execute: true };
  const waiting = requests.filter((r) => r.state === "waiting").map((r) => `${count(r.letters)} of ${r.uid}`);
  return h(Confirmed, { ...more, title: "Redrive dead letters", word: "Redrive", conf, ready: Boolean(of),
    says: "The next checkpoint gives these records to the operator that refused them, as the current code decodes "
      + "them, each once. Task plan of the run counts how many the code would apply." },
  h(Answered, { answer, what: "the dead letters" }, () => h(Facts, { facts: {
    "Dead letters": of ? `${count(of.letters)}, from ${of.first} to ${of.last}` : "none",
    "Redriven so far": of && of.redriven ? count(of.redriven) : null,
    "Waiting for a checkpoint": waiting.length ? list(waiting) : null,
  } })),
  open.length > 0 && h(Choice, { label: "Operator and reason", value: String(chosen ?? 0),
    onChange: (n) => setChosen(Number(n)), options: open.map((t, n) => [String(n), `${t.uid}: ${t.reason}`]) }),
  open.length > 0 && h(C.Flex, { as: "label", gap: 2, fontSize: "sm", align: "center" },
    h("input", { type: "checkbox", checked: late, onChange: (e) => setLate(e.target.checked) }),
    "Also if the operator's result depends on the order of arrival"),
  open.length > 0 && h(Field, { label: "Note", value: note, maxLength: 1000,
    onChange: (e) => setNote(e.target.value) }));
}
