// The forms behind the buttons; each shows its effect first.

import { Confirmed, DANGER, Field, FormDialog, onlyButton } from "./confirmed.js";
import { Choice } from "./history.js";
import { letterKey } from "./letters.js";
import { list } from "./made.js";
import { confOf, Nothing, PointChoice, RestoreEffect, wordOf } from "./restorepoint.js";
import { airflow, Answered, ask, C, changed, Check, count, duration, Facts, h, Muted, Name, ours, Trouble, useAnswer,
  useState } from "./ui.js";

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;

// The fault of a new name, as far as the page knows; null if there is none.
export function wrongName(name, taken, refused) {
  if (name === "") return null;
  if (!NAME.test(name)) return "Letters, digits, '_', '.' and '-' only; a letter or digit first.";
  if (refused.test(name)) return "Tidemark gives such names itself.";
  return taken.includes(name) ? "This name was used already." : null;
}

export const NameField = ({ name, setName, wrong, help, ...more }) => h(Field, { label: "Name", value: name,
  maxLength: 63, required: true, error: wrong, help, onChange: (e) => setName(e.target.value), ...more });

export const NoteField = ({ note, setNote }) => h(Field, { label: "Note", value: note, maxLength: 1000,
  onChange: (e) => setNote(e.target.value) });

export const CheckpointForm = (more) => h(Confirmed, { ...more, title: "Checkpoint now", conf: {},
  says: "What Kafka holds now becomes the next checkpoint." });

// The fault of an expiry as it is typed; null if there is none.
export const wrongExpiry = (text) => (text === "" || text === "never" || /^\d{1,6}[mhdw]$/.test(text)
  || (/^\d{4}-\d\d-\d\d/.test(text) && Date.parse(text) > Date.now()) ? null
  : "30d, 12h, or a later time as in 2030-01-31T00:00Z.");

export const ExpiryField = ({ expires, setExpires }) => h(Field, { label: "Expires", value: expires, maxLength: 40,
  error: wrongExpiry(expires), onChange: (e) => setExpires(e.target.value),
  help: "30d, 12h, or a time as in 2030-01-31T00:00Z. Empty: never." });

export function SavepointForm({ begins, ...more }) {
  const { pipeline } = more;
  const { checkpoint } = begins;
  const [name, setName] = useState("");
  const [note, setNote] = useState("");
  const [expires, setExpires] = useState("");
  const known = useAnswer(ours(["pipelines", pipeline, "savepoints"], { disposed: true }), 0).data || [];
  const wrong = wrongName(name, known.map((s) => s.name), /^(chk-)?\d+$/i);
  const conf = { pipeline, name, checkpoint: checkpoint ? `chk-${checkpoint}` : null, note: note || null,
    expires: expires || null };
  return h(Confirmed, { ...more, title: "Create savepoint", conf, ready: name !== "" && !wrong && !wrongExpiry(expires),
    says: `It pins ${checkpoint ? `chk-${checkpoint}` : "the newest checkpoint"} under a name. Nothing is copied.` },
  h(NameField, { name, setName, wrong, "data-autofocus": true, help: "A name is used once." }),
  h(NoteField, { note, setNote }),
  h(ExpiryField, { expires, setExpires }));
}

export function RestoreForm({ begins, ...more }) {
  const { pipeline } = more;
  const given = wordOf(begins) !== "";
  const [point, setPoint] = useState(given ? begins : null);
  const [sinks, setSinks] = useState(false);
  const [force, setForce] = useState(false);
  const answer = useAnswer(point ? ours(["pipelines", pipeline, "restore-plan"], point) : null, 0);
  const plan = point && answer.data;
  // The run restores what the plan has shown, whatever is the newest checkpoint by then.
  const at = plan ? (point.savepoint ? point : { checkpoint: Number(plan.checkpoint.slice(4)) }) : {};
  const conf = { pipeline, ...confOf(at), restore_sinks: sinks, force: force || null };
  return h(Confirmed, { ...more, title: "Restore", danger: true, conf: { ...conf, execute: true },
    dry: { ...conf, execute: false }, ready: Boolean(plan) && (!plan.drained || force),
    says: "A new timeline begins at the restore point and becomes live. Nothing is copied or deleted." },
  !given && h(PointChoice, { pipeline, onPoint: setPoint }),
  point ? h(RestoreEffect, { answer, sinks, setSinks, force, setForce }) : h(Nothing));
}

const MODES = [["compare", "Compare only (keep as a fork)"], ["approve", "Promote after approval"],
  ["promote", "Promote at once"]];

export function BackfillForm({ begins, ...more }) {
  const { pipeline } = more;
  const answer = useAnswer(ours(["pipelines", pipeline, "backfill-plan"], begins), 0);
  const [mode, setMode] = useState("compare");
  const conf = { pipeline, ...confOf(begins), mode };
  return h(Confirmed, { ...more, title: "Backfill", danger: mode === "promote", conf, ready: Boolean(answer.data),
    says: `Forks at ${wordOf(begins)} and repeats the checkpoints since with the current code, while the live `
      + "timeline continues. Then both states are compared." },
  h(Answered, { answer, what: "the plan" }, (plan) => h(Facts, { facts: {
    "Checkpoints to repeat": plan.repeats.length === 0 ? "none: it is the live head" : list(plan.repeats),
    "Records to read": plan.repeats.length ? count(plan.records) : null,
    "Expected time": plan.repeats.length ? `about ${duration(plan.work_duration)}, as long as they took` : null,
  } })),
  h(C.Box, { fontSize: "sm" }, "Then", h(Choice, { label: "What then", value: mode, onChange: setMode,
    options: MODES })));
}

// Begins a timeline next to the live one. Without a checkpoint it asks for the restore point.
export function ForkForm({ begins, ...more }) {
  const { pipeline } = more;
  const given = wordOf(begins);
  const [source, setSource] = useState(given);
  const [name, setName] = useState("");
  const [note, setNote] = useState("");
  const pins = useAnswer(ours(["pipelines", pipeline, "savepoints"]), 0).data;
  const tree = useAnswer(ours(["pipelines", pipeline, "timelines"]), 0).data;
  const wrong = wrongName(name, (tree || []).map((t) => t.timeline), /^t\d+$/);
  const lost = given ? null : unknownSource(source, pins, tree);
  const conf = { pipeline, source, name, note: note || null };
  return h(Confirmed, { ...more, title: "Fork", conf, ready: source !== "" && name !== "" && !wrong && !lost,
    says: `Begins a separate timeline${given ? ` at ${given}` : ""}. Nothing is copied, nothing is sent to Kafka, and `
      + "the live timeline continues." },
  !given && h(Field, { label: "From", value: source, maxLength: 63, required: true, "data-autofocus": true,
    list: "restore-points", error: lost, onChange: (e) => setSource(e.target.value),
    help: "A savepoint, or a checkpoint as in chk-17." }),
  h("datalist", { id: "restore-points" }, (pins || []).map((s) => h("option", { key: s.name, value: s.name }))),
  h(NameField, { name, setName, wrong, "data-autofocus": given ? true : undefined,
    help: "Of the timeline, as in what-if. A name is used once." }),
  h(NoteField, { note, setNote }));
}

function unknownSource(source, pins, tree) {
  if (source === "" || !pins || !tree) return null;
  const number = /^chk-([1-9][0-9]*)$/.exec(source);
  if (!number) return pins.some((s) => s.name === source) ? null : "There is no such savepoint.";
  const newest = Math.max(0, ...tree.map((t) => (t.newest ? Number(t.newest.slice(4)) : 0)));
  return Number(number[1]) > newest ? `The newest checkpoint is chk-${newest}.` : null;
}

// A request names each of its letters.
const MOST_LETTERS = 20000;

// Asks the next checkpoint to give an operator its dead letters again. `from` chooses the operator and the reason.
export function RedriveForm({ from, ...more }) {
  const { pipeline } = more;
  const answer = useAnswer(ours(["pipelines", pipeline, "dead-letters"]), 0);
  const [chosen, setChosen] = useState(null);
  const [late, setLate] = useState(false);
  const [note, setNote] = useState("");
  const { letters = [], requests = [] } = answer.data || {};
  const open = letters.filter((t) => t.letters > 0);
  const named = open.findIndex((t) => letterKey(t.uid, t.reason) === from);
  const of = open[chosen ?? Math.max(0, named)];
  const missing = Boolean(answer.data) && Boolean(from) && named < 0 && chosen === null;
  const part = of && of.letters > MOST_LETTERS ? MOST_LETTERS : null;
  const conf = of && { pipeline, uid: of.uid, reason: of.reason, limit: part, out_of_order: late, note: note || null };
  const waiting = requests.filter((r) => r.state === "waiting").map((r) => `${count(r.letters)} of ${r.uid}`);
  return h(Confirmed, { ...more, title: "Redrive dead letters", conf: conf && { ...conf, execute: true },
    dry: conf && { ...conf, execute: false }, ready: Boolean(of) && !missing,
    says: "The next checkpoint gives these records to the operator that rejected them, as the current code decodes "
      + "them, each once. A dry run counts how many the code would apply." },
  missing && h(C.Text, { fontSize: "sm", color: "orange.fg", role: "alert" }, h("bdi", null, from),
    " has no dead letters left. Choose another operator and reason."),
  open.length > 0 && h(C.Box, { fontSize: "sm" }, "Operator and reason", h(Choice, { label: "Operator and reason",
    value: missing ? "" : String(open.indexOf(of)), onChange: (n) => setChosen(Number(n)),
    options: [...(missing ? [["", "choose"]] : []), ...open.map((t, n) => [String(n), `${t.uid}: ${t.reason}`])] })),
  h(Answered, { answer, what: "the dead letters" }, () => h(Facts, { facts: {
    "Dead letters": missing ? null : of ? `${count(of.letters)}, from ${of.first} to ${of.last}` : "none",
    "In this request": part && !missing ? `the oldest ${count(part)}; repeat it after the next checkpoint` : null,
    "Redriven so far": !missing && of && of.redriven ? count(of.redriven) : null,
    "Waiting for a checkpoint": waiting.length ? list(waiting) : null,
  } })),
  open.length > 0 && h(Check, { checked: late, onChange: setLate },
    "Also if the operator's result depends on the order of arrival"),
  open.length > 0 && h(NoteField, { note, setNote }));
}

export const RetentionForm = (more) => h(Confirmed, { ...more, title: "Run retention", danger: true,
  conf: {}, says: `DAG ${more.dag.id} releases what the calendar lists, for every pipeline that it names, and deletes `
    + "files whose grace period is over. A released checkpoint cannot be restored." });

// The write of a form that needs no DAG, and its error; the form closes after it.
function useWrite(write, close) {
  const [state, setState] = useState({});
  const go = (event) => {
    event.preventDefault();
    setState({ sent: true });
    write().then(() => { changed(); close(); }, (error) => setState({ error }));
  };
  return { ...state, go };
}

// Disposes of a savepoint, which needs no DAG: the page shows what else pins it and what forbids it.
export function DisposalForm({ pipeline, begins, close }) {
  const name = begins.savepoint;
  const there = ours(["pipelines", pipeline, "savepoints", name, "disposal"]);
  const answer = useAnswer(there, 0);
  const { sent, error, go } = useWrite(() => ask(there, { execute: true }), close);
  const title = "Dispose of savepoint";
  return h(FormDialog, { title, name: "dispose", close }, h("form", { onSubmit: go, "data-disposal": name },
    h(Answered, { answer, what: "what needs it" }, (plan) => h(C.Flex, { direction: "column", gap: 3 },
      h(Muted, null, `Unpins ${plan.checkpoint}. The name `, h(Name, null, name),
        " cannot be reused. No files are deleted now."),
      h(Facts, { facts: { "Also pinned by": list(plan.also_pinned_by), "Needed by": list(plan.needed_by) } }),
      error && h(Trouble, { error }),
      h(C.Flex, { justify: "flex-end" }, h(C.Button, { type: "submit", size: "sm", ...DANGER,
        disabled: sent || plan.needed_by.length > 0 }, title))))));
}

// Aborts a checkpoint in progress, and fails the DAG run that made it, so that the next one can begin.
export function AbortForm({ pipeline, begins, close }) {
  const { checkpoint } = begins;
  const [ends, setEnds] = useState(true);
  const details = useAnswer(ours(["pipelines", pipeline, "checkpoints", "details", checkpoint]), 0);
  const origin = details.data && details.data.origin;
  const owner = useAnswer(origin ? ours(["runs"], { run_id: origin }) : null, 0).data;
  const active = owner && owner.may_fail && ["running", "queued"].includes(owner.state);
  const { sent, error, go } = useWrite(async () => {
    await ask(ours(["pipelines", pipeline, "checkpoints", "details", checkpoint, "abort"]), { execute: true });
    if (active && ends) await ask(airflow(["dags", owner.dag_id, "dagRuns", origin]), { state: "failed" }, "PATCH");
  }, close);
  const title = "Abort checkpoint";
  return h(FormDialog, { title, name: "abort", close }, h("form", { onSubmit: go, onKeyDown: onlyButton },
    h(Answered, { answer: details, what: `chk-${checkpoint}` }, (data) => h(C.Flex, { direction: "column", gap: 3 },
      data.status === "IN_PROGRESS"
        ? h(Muted, null, `Revokes the attempt at ${data.name}, which cannot publish anything any more. The next plan `
          + "reads the same offsets; every completed checkpoint is intact.")
        : h(Muted, null, `${data.name} is not in progress any more.`),
      h(Facts, { facts: { "Since its trigger": data.progress && duration(data.progress.elapsed),
        Acknowledged: `${data.num_acknowledged_subtasks} of ${data.num_subtasks} operators`, "DAG run": origin } }),
      active && h(Check, { checked: ends, onChange: setEnds },
        "Mark the DAG run as failed, so that the next one begins"),
      error && h(Trouble, { error }),
      h(C.Flex, { justify: "flex-end" }, h(C.Button, { type: "submit", size: "sm", ...DANGER,
        disabled: sent || data.status !== "IN_PROGRESS" }, title))))));
}

// Withdraws a request to redrive dead letters, which needs no DAG.
export function WithdrawalForm({ pipeline, from, close }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "dead-letters"]), 0);
  const { sent, error, go } = useWrite(() => ask(ours(["pipelines", pipeline, "dead-letters", "requests", from,
    "withdrawal"]), { execute: true }), close);
  const title = "Withdraw redrive";
  return h(FormDialog, { title, name: "withdraw", close }, h("form", { onSubmit: go },
    h(Answered, { answer, what: "the requests" }, (data) => {
      const request = data.requests.find((r) => String(r.number) === from);
      const waits = Boolean(request) && request.state === "waiting";
      return h(C.Flex, { direction: "column", gap: 3 },
        h(Muted, null, waits ? `The next checkpoint does not take up request ${from}, and its letters stay dead `
          + "letters. A checkpoint in progress may still redrive them." : request ? `Request ${from} does not wait for `
          + "a checkpoint." : `There is no request ${from}.`),
        request && h(Facts, { facts: { Operator: request.uid, Letters: count(request.letters), "Asked by":
          request.owner, Note: request.note || null } }),
        error && h(Trouble, { error }),
        h(C.Flex, { justify: "flex-end" }, h(C.Button, { type: "submit", size: "sm", ...DANGER,
          disabled: sent || !waits }, title)));
    })));
}
