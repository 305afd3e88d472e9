// Actions: each triggers a DAG through Airflow's interface, with the rights of whoever clicks, and leads to its run.

import { airflow, Answered, ask, C, dagRun, Facts, h, Inside, Muted, Name, ours, Panel, Trouble, useAnswer,
  useEffect, useState } from "./ui.js";
import { Choice } from "./history.js";

// What tells the DAGs of a pipeline apart: their tasks.
const KINDS = {
  checkpoint: ["plan", "fold", "validate", "complete"],
  savepoint: ["plan", "create"],
  restore: ["plan", "restore"],
  backfill: ["plan", "repeat", "compare", "promote"],
  retention: ["plan", "sweep", "verify"],
};

// The DAGs that a user sees of a pipeline: {checkpoint: {id, paused}, …}; null until they are known.
export function useDags(pipeline) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let gone = false;
    const look = async () => {
      const told = await ask(airflow(["dags"], { tags: ["tidemark", pipeline], tags_match_mode: "all", limit: 100 }));
      const made = {};
      // A DAG on a schedule has a form of its own making: one on demand is meant for people.
      const onDemand = (dag) => [null, "None"].includes(dag.timetable_summary);
      for (const dag of [...told.dags].sort((one, other) => onDemand(other) - onDemand(one))) {
        const { tasks } = await ask(airflow(["dags", dag.dag_id, "tasks"]));
        const ids = new Set(tasks.map((t) => t.task_id));
        for (const [kind, all] of Object.entries(KINDS)) {
          if (!made[kind] && all.every((id) => ids.has(id))) made[kind] = { id: dag.dag_id, paused: dag.is_paused };
        }
      }
      if (!gone) setFound(made);
    };
    look().catch((error) => !gone && setFound({ error }));
    return () => { gone = true; };
  }, [pipeline]);
  return found;
}

// The buttons: of a checkpoint, or of the pipeline where none is given.
export function Actions({ pipeline, facts, checkpoint }) {
  const dags = useDags(pipeline);
  const [open, setOpen] = useState(null);
  if (!facts.may_trigger || dags === null) return null;
  if (dags.error) return h(Trouble, { error: dags.error });
  const all = [
    ["checkpoint", "Checkpoint now", !checkpoint],
    ["savepoint", "Create savepoint…", true],
    ["restore", "Restore…", Boolean(checkpoint)],
    ["backfill", "Backfill from here…", Boolean(checkpoint)],
  ].filter(([kind, , fits]) => fits && dags[kind]);
  const close = () => setOpen(null);
  const shared = { pipeline, checkpoint, dag: dags[open], close };
  return h(C.Box, { w: checkpoint ? "100%" : "auto" },
    h(C.Flex, { gap: 2, wrap: "wrap", role: "group", "aria-label": "Actions" },
      all.map(([kind, word]) => h(C.Button, {
      key: kind, size: "xs", variant: kind === "checkpoint" ? "solid" : "outline", colorPalette: "brand",
        "aria-expanded": open === kind,
      onClick: () => setOpen(open === kind ? null : kind),
    }, word))),
    open === "checkpoint" && h(Confirmed, { ...shared, title: "Checkpoint now", word: "Trigger", conf: {},
      says: `Triggers DAG ${dags.checkpoint.id}: what Kafka holds now becomes the next checkpoint.` }),
    open === "savepoint" && h(SavepointForm, shared),
    open === "restore" && h(RestoreForm, shared),
    open === "backfill" && h(BackfillForm, shared));
}

// A form that triggers a DAG, and then tells how its run goes.
export function Confirmed({ dag, title, word, conf, says, children, close, danger, ready = true }) {
  const [state, setState] = useState({});
  const send = async (event) => {
    event.preventDefault();
    setState({ sent: true });
    try {
      const made = await ask(airflow(["dags", dag.id, "dagRuns"]), { logical_date: null, conf });
      setState({ sent: true, run: made.dag_run_id });
    } catch (error) {
      setState({ error });
    }
  };
  return h(Panel, { title, mt: 2, aside: h(C.Button, { size: "xs", variant: "ghost", onClick: close }, "Close") },
    h("form", { onSubmit: send },
      h(C.Flex, { direction: "column", gap: 2, align: "flex-start" },
        says && h(Muted, null, says), children,
        dag.paused && h(C.Text, { fontSize: "sm", color: "orange.fg" },
          `DAG ${dag.id} is paused: the run waits until somebody unpauses it.`),
        state.error && h(Trouble, { error: state.error }),
        state.run ? h(Run, { dag: dag.id, run: state.run })
          : h(C.Button, { type: "submit", size: "sm", colorPalette: danger ? "red" : "brand",
            disabled: !ready || state.sent }, state.sent ? "Triggering …" : word))));
}

function Run({ dag, run }) {
  const answer = useAnswer(airflow(["dags", dag, "dagRuns", run]), 2000);
  const state = answer.told ? answer.told.state : "queued";
  const tone = { success: "green", failed: "red" }[state] || "blue";
  return h(C.Flex, { gap: 2, align: "center", wrap: "wrap", fontSize: "sm", role: "status", "data-run": run },
    "Run ", h(Inside, { to: dagRun(dag, run) }, h(Name, { most: "26rem" }, run)),
      h(C.Badge, { colorPalette: tone }, state));
}

const Field = ({ label, help, ...more }) => h(C.Box, { as: "label", fontSize: "sm", w: "22rem", maxW: "100%" }, label,
  h(C.Input, { size: "sm", ...more }), help && h(Muted, { fontSize: "xs" }, help));

function SavepointForm({ pipeline, checkpoint, ...more }) {
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

const list = (all, most = 12) => (all.length === 0 ? "none"
  : all.slice(0, most).join(", ") + (all.length > most ? ` and ${all.length - most} more` : ""));

function RestoreForm({ pipeline, checkpoint, ...more }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "restore-plan"], { checkpoint }), 0);
  const [sinks, setSinks] = useState(false);
  const conf = { pipeline, checkpoint: `chk-${checkpoint}`, restore_sinks: sinks, execute: true };
  return h(Confirmed, { ...more, title: `Restore chk-${checkpoint}`, word: `Restore chk-${checkpoint}`,
    danger: true, conf, ready: Boolean(answer.told),
    says: "A new timeline begins at the checkpoint and becomes live. Nothing is copied or deleted. "
      + "Task plan of the run checks files, code and Kafka before anything changes." },
  h(Answered, { answer, what: "the plan" }, (plan) => h(Facts, { facts: {
    "Ends timeline": plan.closes,
    "Stays on it": list(plan.left),
    "Read again": Object.entries(plan.read_again).map(([tp, range]) => `${tp} ${range}`).join(", ") || "nothing",
    Drained: plan.drained ? "the pipeline was stopped for good with it" : null,
  } })),
  h(C.Flex, { as: "label", gap: 2, fontSize: "sm", align: "center" },
    h("input", { type: "checkbox", checked: sinks, onChange: (e) => setSinks(e.target.checked) }),
    "Delta sinks go back with the state"));
}

const MODES = [["compare", "Compare only: the fork stays beside"], ["approve", "Promote after approval"],
  ["promote", "Promote at once"]];

function BackfillForm({ pipeline, checkpoint, ...more }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "restore-plan"], { checkpoint }), 0);
  const [mode, setMode] = useState("compare");
  const conf = { pipeline, checkpoint: `chk-${checkpoint}`, mode };
  return h(Confirmed, { ...more, title: `Backfill from chk-${checkpoint}`, word: "Backfill",
    danger: mode === "promote", conf, ready: Boolean(answer.told),
    says: "Forks at the checkpoint and repeats what was recorded since, with the code of now, while the live "
      + "timeline goes on. Then both states are compared." },
  h(Answered, { answer, what: "the plan" }, (plan) => h(Facts,
    { facts: { "Will be repeated": list([...plan.left].reverse()) } })),
  h(Choice, { label: "What then", value: mode, onChange: setMode, options: MODES }));
}

// Ends a savepoint: what that frees and what needs it is shown first.
export function Disposal({ pipeline, name, done }) {
  const [open, setOpen] = useState(false);
  const [error, setError] = useState(null);
  const answer = useAnswer(open ? ours(["pipelines", pipeline, "savepoints", name, "disposal"]) : null, 0);
  if (!open) return h(C.Button, { size: "2xs", variant: "outline", colorPalette: "red",
    onClick: () => setOpen(true) }, "Dispose…");
  const go = () => ask(ours(["pipelines", pipeline, "savepoints", name, "disposal"]), { execute: true }).then(done,
    setError);
  return h(C.Box, { whiteSpace: "normal", w: "20rem" },
    h(Answered, { answer, what: "what needs it" }, (plan) => h(C.Box, null,
    h(Muted, null, `Ends the pin of ${plan.checkpoint}; the name is never used again. No file goes now.`),
    h(Facts, { facts: { "Also pinned by": list(plan.also_pinned_by), "Needed by": list(plan.needed_by) } }),
    error && h(Trouble, { error }),
    h(C.Flex, { gap: 2, mt: 2 },
      h(C.Button, { size: "xs", colorPalette: "red", disabled: plan.needed_by.length > 0, onClick: go }, "Dispose"),
      h(C.Button, { size: "xs", variant: "outline", onClick: () => setOpen(false) }, "Keep")))));
}
