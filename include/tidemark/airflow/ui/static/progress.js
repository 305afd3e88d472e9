// An open checkpoint: its step, the time since the trigger, and how many operators have acknowledged.

import { useDags } from "./dags.js";
import { PlaceLink } from "./place.js";
import { C, duration, h, Muted, Name, ours, useAnswer, useEffect, useState } from "./ui.js";

const STEPS = [["planned", "Planned"], ["running", "Running"], ["sealed", "Sealed"], ["completed", "Completed"]];
const NOW = {
  planned: "The plan is written; no attempt has begun.",
  running: "The attempt reads, folds and commits, operator by operator; then the gate judges.",
  sealed: "All operators have acknowledged and the gate has passed; the manifest is being published.",
};

export function Progress({ progress, of, pipeline }) {
  const elapsed = useElapsed(progress.elapsed);
  const at = STEPS.findIndex(([id]) => id === progress.step);
  const [acked, all] = [of.num_acknowledged_subtasks, of.num_subtasks];
  return h(C.Box, { role: "group", "aria-label": "Progress", "data-progress": progress.step, borderWidth: "1px",
    borderColor: "border", borderRadius: "md", p: 3, mb: 3 },
  h(C.Flex, { as: "ol", listStyleType: "none", gap: 2, wrap: "wrap", fontSize: "sm", mb: 2 },
    STEPS.map(([id, word], n) => h(C.Flex, { as: "li", key: id, gap: 2, align: "center",
      "aria-current": n === at ? "step" : undefined, color: n > at ? "fg.muted" : "fg",
      fontWeight: n === at ? "semibold" : "normal" },
    n > 0 && h("span", { "aria-hidden": true }, "→"), `${n < at ? "✓ " : n === at ? "● " : ""}${word}`))),
  h(C.Flex, { gap: 5, wrap: "wrap", fontSize: "sm" },
    h("span", { role: "timer", "data-elapsed": true }, `Elapsed ${duration(elapsed)}`),
    progress.attempt > 0 && h("span", null, `Attempt ${progress.attempt}`),
    h("span", { role: "status", "data-acks": `${acked}/${all}` }, `Acknowledged ${acked} of ${all} operators`),
    h(Stuck, { pipeline, of, elapsed })),
  h(C.Box, { "aria-hidden": true, mt: 2, h: 2, borderRadius: "sm", bg: "bg.emphasized", overflow: "hidden" },
    h(C.Box, { h: "100%", bg: "blue.solid", w: `${all ? (100 * acked) / all : 0}%` })),
  h(Muted, { mt: 2 }, NOW[progress.step]),
  progress.acknowledged.length > 0 && progress.step === "running" && h(Muted, { mt: 1 }, "Committed: ",
    progress.acknowledged.map((uid, n) => h("span", { key: uid }, n > 0 && ", ", h(Name, { most: "12rem" }, uid)))));
}

// A checkpoint that is older than its timeout is marked; with the right to trigger the DAG you may abort it.
function Stuck({ pipeline, of, elapsed }) {
  const dags = useDags(pipeline);
  const { timeout } = useAnswer(ours(["pipelines", pipeline, "checkpoints", "config"]), 0).data || {};
  const at = { pipeline, view: "checkpoint", checkpoint: of.id, form: "abort", from: `chk-${of.id}` };
  return h(C.Flex, { gap: 3, align: "center" },
    timeout > 0 && elapsed > timeout && h(C.Badge, { colorPalette: "orange", "data-stuck": of.id },
      `! older than its timeout of ${duration(timeout)}`),
    dags && dags.mayDispose && h(PlaceLink, { at }, "Abort…"));
}

// A clock that ticks between two answers.
function useElapsed(data) {
  const [since, setSince] = useState({ data, at: Date.now() });
  const [, tick] = useState(0);
  useEffect(() => setSince({ data, at: Date.now() }), [data]);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return since.data + Date.now() - since.at;
}
