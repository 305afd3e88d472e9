// Actions: each triggers a DAG through Airflow's interface, with your permissions, and links to its run.

import { Confirmed } from "./confirmed.js";
import { BackfillForm, ForkForm, list, RedriveForm, RestoreForm, SavepointForm } from "./forms.js";
import { airflow, Answered, ask, C, Facts, h, Muted, ours, Panel, Trouble, useAnswer, useEffect,
  useState } from "./ui.js";

// The task that identifies each kind of DAG of a pipeline.
const KINDS = {
  checkpoint: ["plan", "fold", "validate", "complete"],
  savepoint: ["plan", "create"],
  restore: ["plan", "restore"],
  fork: ["plan", "fork"],
  backfill: ["plan", "repeat", "compare", "promote"],
  retention: ["plan", "sweep", "verify"],
  redrive: ["plan", "redrive"],
};

// The DAGs of a pipeline that the user may see: {checkpoint: {id, paused}, …}; null until they are loaded.
export function useDags(pipeline) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let gone = false;
    const look = async () => {
      const data = await ask(airflow(["dags"], { tags: ["tidemark", pipeline], tags_match_mode: "all", limit: 100 }));
      const made = {};
      // Prefer a DAG on demand: the runs of a scheduled one are not meant for people.
      const onDemand = (dag) => [null, "None"].includes(dag.timetable_summary);
      for (const dag of [...data.dags].sort((one, other) => onDemand(other) - onDemand(one))) {
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

// The buttons of a checkpoint; without one, those of the pipeline.
export function Actions({ pipeline, facts, checkpoint }) {
  const dags = useDags(pipeline);
  const [open, setOpen] = useState(null);
  if (!facts.may_trigger || dags === null) return null;
  if (dags.error) return h(Trouble, { error: dags.error });
  const all = [
    ["checkpoint", "Checkpoint now", !checkpoint],
    ["savepoint", "Create savepoint…", true],
    ["restore", "Restore…", Boolean(checkpoint)],
    ["fork", "Fork…", true],
    ["backfill", "Backfill from here…", Boolean(checkpoint)],
    ["redrive", "Redrive dead letters…", !checkpoint],
  ].filter(([kind, , fits]) => fits && dags[kind]);
  return h(C.Box, { w: checkpoint ? "100%" : "auto" },
    h(C.Flex, { gap: 2, wrap: "wrap", align: "center", minH: 9, role: "group", "aria-label": "Actions" },
      all.map(([kind, word]) => h(C.Button, {
        key: kind, size: "xs", variant: kind === "checkpoint" ? "solid" : "outline", colorPalette: "brand",
        "aria-expanded": open === kind, onClick: () => setOpen(open === kind ? null : kind),
      }, word))),
    h(Action, { pipeline, dags, kind: open, begins: { checkpoint }, close: () => setOpen(null) }));
}

// The form of the chosen action; `begins` is {checkpoint}, {savepoint} or {}.
export function Action({ pipeline, dags, kind, begins, close }) {
  const shared = { pipeline, begins, dag: dags[kind], close };
  if (kind === "checkpoint") {
    return h(Confirmed, { ...shared, title: "Checkpoint now", word: "Trigger", conf: {},
      says: `Triggers DAG ${dags.checkpoint.id}: what Kafka holds now becomes the next checkpoint.` });
  }
  const form = { savepoint: SavepointForm, restore: RestoreForm, fork: ForkForm, backfill: BackfillForm,
    redrive: RedriveForm }[kind];
  return form ? h(form, { key: kind, ...shared }) : null;
}

// Disposes of a savepoint, after a preview of its other pins and of the reasons that forbid it.
export function Disposal({ pipeline, name, done, close }) {
  const [error, setError] = useState(null);
  const there = ours(["pipelines", pipeline, "savepoints", name, "disposal"]);
  const answer = useAnswer(there, 0);
  const go = () => ask(there, { execute: true }).then(done, setError);
  return h(Panel, { title: `Dispose of ${name}`, mt: 2, "data-disposal": name,
    aside: h(C.Button, { size: "xs", variant: "ghost", onClick: close }, "Keep") },
  h(Answered, { answer, what: "what needs it" }, (plan) => h(C.Box, null,
    h(Muted, null, `Ends the pin of ${plan.checkpoint}; the name is never used again. No file goes now.`),
    h(Facts, { facts: { "Also pinned by": list(plan.also_pinned_by), "Needed by": list(plan.needed_by) } }),
    error && h(Trouble, { error }),
    h(C.Button, { size: "sm", mt: 2, colorPalette: "red", disabled: plan.needed_by.length > 0, onClick: go },
      "Dispose"))));
}
