// The tab "Checkpoint" of a DAG run: its checkpoints with their lineage.

import { Details, useDetails } from "./details.js";
import { Choice } from "./history.js";
import { hashOf } from "./place.js";
import { airflow, Answered, ask, C, Empty, h, Inside, Name, ours, Panel, useAnswer, useEffect,
  useState } from "./ui.js";

const LIVE = 2000;
const OVER = ["success", "failed"];
const ended = (run) => Boolean(run) && OVER.includes(run.state);

function Checkpoint({ dagId, runId }) {
  const run = useAnswer(airflow(["dags", dagId, "dagRuns", runId]), (data) => (ended(data) ? 0 : LIVE)).data;
  const tasks = useTasks(dagId);
  const answer = useAnswer(ours(["dags", dagId, "checkpoints"], { run_id: runId }),
    () => (ended(run) ? 10000 : LIVE));
  const finished = useFinished(dagId, runId, ended(run) && tasks.includes("complete"));
  const { again } = answer;
  // Asks once more when the run is over, for its last checkpoint.
  useEffect(() => { if (ended(run)) again(); }, [ended(run)]);
  return h(C.Box, { p: 3, "data-page": "checkpoint" }, h(Answered, { answer, what: "what the run made" }, (data) => {
    const made = data.map((one) => ({ ...one, checkpoints: [...new Set([...one.checkpoints, ...finished])].sort((a,
      b) => b - a) }));
    const any = made.filter((one) => one.checkpoints.length || one.timelines.length || one.savepoints.length);
    if (made.length === 0) return h(Empty, { title: "No checkpoints here" },
      "This DAG belongs to no pipeline of Tidemark that you may see.");
    if (any.length === 0) return h(Nothing, { run, makes: tasks.includes("fold") || tasks.includes("repeat") });
    return any.map((one) => h(Made, { key: one.pipeline, one, dag: dagId }));
  }));
}

// A run without a checkpoint: it is still planning, or has ended without one.
function Nothing({ run, makes }) {
  if (!run) return null;
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
  if (!makes) return h(Empty, { title: "This DAG makes no checkpoints" }, "See the logs of its tasks.");
  return run.state === "failed"
    ? h(Empty, { title: "This run failed before it planned a checkpoint" },
      "The log of the failed task has the reason.")
    : h(Empty, { title: "This run made no checkpoint" },
      "Its interval was covered already. The log of task plan says by which checkpoint.");
}

// Ids of a DAG's tasks; none until they are loaded.
function useTasks(dag) {
  const { data } = useAnswer(airflow(["dags", dag, "tasks"]), () => 0);
  return data ? data.tasks.map((task) => task.task_id) : [];
}

// Ids that the run's last task completed, including those that an earlier run had planned.
function useFinished(dag, run, there) {
  const [found, setFound] = useState([]);
  useEffect(() => {
    if (!there) return undefined;
    let gone = false;
    const take = (data) => {
      const body = typeof data.value === "string" ? JSON.parse(data.value.replace(/'/g, '"')) : data.value;
      const ids = ((body && body.completed) || []).map((name) =>
        Number(String(name).slice(4))).filter(Number.isInteger);
      if (!gone) setFound(ids);
    };
    ask(airflow(["dags", dag, "dagRuns", run, "taskInstances", "complete", "xcomEntries",
      "return_value"])).then(take).catch(() => undefined);
    return () => { gone = true; };
  }, [dag, run, there]);
  return found;
}

function Made({ one, dag }) {
  const [chosen, setChosen] = useState(null);
  const shown = chosen ?? one.checkpoints[0];
  const at = shown ? { view: "checkpoint", checkpoint: shown } : { view: "history" };
  const others = [...new Set([...one.checkpoints, ...(chosen ? [chosen] : [])])];
  return h(C.Flex, { direction: "column", gap: 3, mb: 4 },
    h(C.Flex, { gap: 3, align: "center", wrap: "wrap", fontSize: "sm" },
      h("b", null, h(Name, null, one.pipeline)),
      others.length > 0 && h(Choice, { label: "Checkpoint", value: String(shown),
        onChange: (n) => setChosen(Number(n)), options: others.map((n) => [String(n),
        one.checkpoints.includes(n) ? `chk-${n}` : `chk-${n} (of another run)`]) }),
      one.timelines.map((t) => h(C.Badge, { key: t, colorPalette: "blue" }, "began timeline ", h(Name, null, t))),
      one.savepoints.map((s) => h(C.Badge, { key: s, colorPalette: "pink" }, "savepoint ", h(Name, null, s))),
      h(Inside, { to: `/plugin/checkpoints${hashOf({ pipeline: one.pipeline, ...at })}` }, "Open in Checkpoints")),
    shown && h(Panel, { key: shown }, h(Shown, { pipeline: one.pipeline, checkpoint: shown, dag,
      onCheckpoint: setChosen })));
}

const Shown = ({ pipeline, checkpoint, ...more }) => h(Details, { pipeline, checkpoint, ...more,
  answer: useDetails(pipeline, checkpoint) });

globalThis.Checkpoint = Checkpoint;
