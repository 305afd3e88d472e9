// The tab "Checkpoint" of a DAG run: what the run made or did, and why it failed.

import { Details, useDetails } from "./details.js";
import { Failures } from "./failure.js";
import { Choice } from "./history.js";
import { idsOf, isDry, Swept, Written } from "./made.js";
import { PlaceLink } from "./place.js";
import { airflow, Answered, C, Empty, h, inFull, Muted, Name, ours, Panel, React, useAnswer, useEffect,
  useState } from "./ui.js";

const LIVE = 2000;
const OVER = ["success", "failed"];
const ended = (run) => Boolean(run) && OVER.includes(run.state);
// Kinds of DAGs whose runs make checkpoints.
const MAKERS = ["checkpoint", "backfill"];

function Checkpoint({ dagId, runId }) {
  const run = useAnswer(airflow(["dags", dagId, "dagRuns", runId]), (data) => (ended(data) ? 0 : LIVE)).data;
  const answer = useAnswer(ours(["dags", dagId, "checkpoints"], { run_id: runId }),
    () => (ended(run) ? 10000 : LIVE));
  const how = useAnswer(ours(["dags", dagId, "outcome"], { run_id: runId }), (data) => (ended(data) ? 0 : LIVE));
  const outcome = how.data;
  const { again } = answer;
  // Asks once more when the run is over, for its last checkpoint.
  useEffect(() => { if (ended(run)) again(); }, [ended(run)]);
  return h(C.Box, { p: 3, "data-page": "checkpoint", "data-kind": (outcome && outcome.kind) || "" },
    h(Answered, { answer, what: "what the run made" }, (data) => {
      // The first run of a pipeline, before it plans, is not known by its checkpoints.
      if (data.length === 0 && !(outcome && MAKERS.includes(outcome.kind))) {
        return h(Empty, { title: "No checkpoints here" },
          "Its pipeline has made no checkpoint yet, or this DAG belongs to no pipeline of Tidemark that you may see.");
      }
      const made = data.map((one) => ({ ...one, checkpoints: own(one, data, outcome) }));
      const any = made.filter((one) => one.checkpoints.length || one.timelines.length || one.savepoints.length);
      return h(C.Box, null,
        outcome && outcome.failures.length > 0 && h(C.Box, { mb: 3 }, h(Failures, { dag: dagId, run: runId, outcome })),
        any.length > 0 ? any.map((one) => h(Made, { key: one.pipeline, one, dag: dagId, run: runId,
          shown: errorsOf(outcome) }))
          : h(Nothing, { run, outcome }));
    }));
}

// Checkpoints that the run made, including those that an earlier run had planned.
const own = (one, all, outcome) => [...new Set([...one.checkpoints, ...(all.length === 1 ? idsOf(outcome) : [])])]
  .sort((a, b) => b - a);

// What `Failures` shows of a failed run.
const errorsOf = (outcome) => (outcome ? outcome.failures : []).filter((one) => one.is_final && one.what)
  .map((one) => one.what);

// A run without a checkpoint: it has not planned yet, or it has ended without one, or its DAG makes none.
function Nothing({ run, outcome }) {
  if (!run || !outcome) return null;
  const makes = MAKERS.includes(outcome.kind);
  if (!ended(run)) {
    const badge = h(C.Badge, { colorPalette: run.state === "running" ? "blue" : "gray" }, run.state);
    return h(C.Flex, { role: "status", direction: "column", align: "center", gap: 2, p: 6,
      "data-run-state": run.state },
      h(C.Flex, { gap: 2, align: "center" }, h(C.Spinner, { size: "sm" }),
        h(C.Text, { fontWeight: "semibold" }, makes ? "Planning…" : "Running…"), badge),
      h(C.Text, { fontSize: "sm", color: "fg.muted" }, makes
        ? "The checkpoint shows here as soon as it is planned."
        : "What the run makes shows here."));
  }
  if (outcome.swept.length > 0) {
    return h(Panel, { title: "What retention did" }, outcome.swept.map((one) => h(Swept, { key: one.pipeline, one })));
  }
  if (outcome.written && run.state === "success") {
    return h(Panel, { title: isDry(outcome) ? "A dry run: nothing was written" : "The fork that this run made" },
      h(Written, { written: outcome.written }));
  }
  if (run.state === "failed") {
    return h(Empty, { title: makes ? "This run failed before it planned a checkpoint" : "This run changed nothing" },
      outcome.failures.some((one) => one.what) ? "The reason is above." : "The log of the failed task has the reason.");
  }
  if (isDry(outcome)) {
    return h(Empty, { title: "A dry run" }, "Task plan found no obstacle, and nothing was changed.");
  }
  return h(Empty, { title: "This run made no checkpoint" }, makes
    ? (outcome.covered_by ? `${outcome.covered_by} had covered its interval already.`
      : "The log of task plan says why.")
    : "Its DAG makes none. The logs of its tasks have the details.");
}

function Made({ one, dag, ...more }) {
  const [chosen, setChosen] = useState(null);
  const shown = chosen ?? one.checkpoints[0];
  const others = [...new Set([...one.checkpoints, ...(chosen ? [chosen] : [])])];
  const at = shown ? { view: "checkpoint", checkpoint: shown } : { view: "timelines" };
  return h(C.Flex, { direction: "column", gap: 3, mb: 4 },
    h(C.Flex, { gap: 3, align: "center", wrap: "wrap", fontSize: "sm" },
      h("b", null, h(Name, null, one.pipeline)),
      others.length > 0 && h(Choice, { label: "Checkpoint", value: String(shown),
        onChange: (n) => setChosen(Number(n)), options: others.map((n) => [String(n),
        one.checkpoints.includes(n) ? `chk-${n}` : `chk-${n} (of another run)`]) }),
      one.timelines.map((t) => h(C.Badge, { key: t, colorPalette: "blue" }, "began timeline ", h(Name, null, t))),
      h(PlaceLink, { at: { pipeline: one.pipeline, ...at } }, "Open in Checkpoints")),
    one.savepoints.length > 0 && h(Savepoints, { one }),
    shown && h(Panel, { key: shown }, h(Shown, { pipeline: one.pipeline, checkpoint: shown, dag,
      onCheckpoint: setChosen, ...more })));
}

// The savepoints of a run, each with its checkpoint and what can be done with it.
function Savepoints({ one }) {
  const { pipeline } = one;
  const answer = useAnswer(ours(["pipelines", pipeline, "savepoints"], { disposed: true }), 0);
  return h(Answered, { answer, what: "its savepoints" }, (all) => all.filter((s) => one.savepoints.includes(s.name))
    .map((s) => h(C.Flex, { key: s.name, gap: 3, align: "center", wrap: "wrap", fontSize: "sm",
      "data-savepoint": s.name },
    h(C.Badge, { colorPalette: "pink" }, "savepoint ", h(Name, null, s.name)), "of",
    h(PlaceLink, { at: { pipeline, view: "checkpoint", checkpoint: Number(s.checkpoint.slice(4)) } }, s.checkpoint),
    h(Muted, null, `as of ${inFull(s.logical_time)}`),
    s.disposed ? h(Muted, null, "disposed of") : DEEDS.map(([form, word]) => h(PlaceLink, { key: form,
      at: { pipeline, view: "timelines", form, from: s.name } }, word)))));
}

const DEEDS = [["restore", "Restore…"], ["fork", "Fork…"], ["backfill", "Backfill…"]];

function Shown({ pipeline, checkpoint, ...more }) {
  const answer = useDetails(pipeline, checkpoint);
  return h(React.Fragment, null, h(CompareLink, { pipeline, data: answer.data }),
    h(Details, { pipeline, checkpoint, ...more, answer }));
}

// The checkpoint of a backfill is compared with the one that it repeats, any other with the one before it.
function CompareLink({ pipeline, data }) {
  if (!data || data.status !== "COMPLETED" || data.discarded) return null;
  const repeated = data.replays[data.replays.length - 1];
  const other = repeated || data.parent;
  if (!other || data.released.includes(other)) return null;
  const at = { pipeline, view: "compare", left: `chk-${other}`, right: data.name };
  return h(PlaceLink, { at, fontSize: "sm" }, repeated
    ? `Compare with chk-${other}, which it repeats` : `Compare with chk-${other}`);
}

globalThis.Checkpoint = Checkpoint;
