// The tab "Checkpoint" of a DAG run: what the run made, each checkpoint with its lineage.

import { Details } from "./details.js";
import { Choice } from "./history.js";
import { airflow, Answered, ask, C, Empty, h, Inside, Name, ours, Panel, useAnswer, useEffect,
  useState } from "./ui.js";

function Checkpoint({ dagId, runId }) {
  const answer = useAnswer(ours(["dags", dagId, "checkpoints"], { run_id: runId }), 5000);
  const finished = useFinished(dagId, runId);
  return h(C.Box, { p: 3, "data-page": "checkpoint" }, h(Answered, { answer, what: "what the run made" }, (told) => {
    const made = told.map((one) => ({ ...one, checkpoints: [...new Set([...one.checkpoints, ...finished])].sort((a,
      b) => b - a) }));
    const any = made.filter((one) => one.checkpoints.length || one.timelines.length || one.savepoints.length);
    if (made.length === 0) return h(Empty, { title: "No checkpoints here" },
      "This DAG belongs to no pipeline of Tidemark that you may see.");
    if (any.length === 0) return h(Empty, { title: "This run made no checkpoint" },
      "Its interval was covered already, or it has not planned yet. The log of task plan says which.");
    return any.map((one) => h(Made, { key: one.pipeline, one, dag: dagId }));
  }));
}

// Ids that the run's last task completed, also where an earlier run had planned them.
function useFinished(dag, run) {
  const [found, setFound] = useState([]);
  useEffect(() => {
    let gone = false;
    const take = (told) => {
      const body = typeof told.value === "string" ? JSON.parse(told.value.replace(/'/g, '"')) : told.value;
      const ids = ((body && body.completed) || []).map((name) =>
        Number(String(name).slice(4))).filter(Number.isInteger);
      if (!gone) setFound(ids);
    };
    ask(airflow(["dags", dag, "dagRuns", run, "taskInstances", "complete", "xcomEntries",
      "return_value"])).then(take).catch(() => undefined);
    return () => { gone = true; };
  }, [dag, run]);
  return found;
}

function Made({ one, dag }) {
  const [chosen, setChosen] = useState(null);
  const shown = chosen ?? one.checkpoints[0];
  const at = shown ? { checkpoint: shown } : {};
  const place = new URLSearchParams({ pipeline: one.pipeline, view: "history", ...at });
  const others = [...new Set([...one.checkpoints, ...(chosen ? [chosen] : [])])];
  return h(C.Flex, { direction: "column", gap: 3, mb: 4 },
    h(C.Flex, { gap: 3, align: "center", wrap: "wrap", fontSize: "sm" },
      h("b", null, h(Name, null, one.pipeline)),
      others.length > 0 && h(Choice, { label: "Checkpoint", value: String(shown),
        onChange: (n) => setChosen(Number(n)), options: others.map((n) => [String(n),
        one.checkpoints.includes(n) ? `chk-${n}` : `chk-${n} (of another run)`]) }),
      one.timelines.map((t) => h(C.Badge, { key: t, colorPalette: "blue" }, "began timeline ", h(Name, null, t))),
      one.savepoints.map((s) => h(C.Badge, { key: s, colorPalette: "pink" }, "savepoint ", h(Name, null, s))),
      h(Inside, { to: `/plugin/checkpoints#${place}` }, "On the page Checkpoints")),
    shown && h(Panel, { key: shown }, h(Details, { pipeline: one.pipeline, checkpoint: shown, dag,
      onCheckpoint: setChosen })));
}

globalThis.Checkpoint = Checkpoint;
