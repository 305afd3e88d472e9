// Why something failed, where you are: the three lines of the error, the log of the task, and what came after.

import { C, dagRun, h, Inside, Muted, Name, ours, Trouble, useAnswer } from "./ui.js";

const SHOWN = 3;
export const logOf = (dag, run, one) => `${dagRun(dag, run)}/tasks/${encodeURIComponent(one.task)}${
  one.map_index >= 0 ? `/mapped/${one.map_index}` : ""}?try_number=${one.try_number}`;

// The reason of a task that has no other one says nothing.
export const plain = (what) => what.replace(/^TASK_FAILURE: /, "");

// The errors of a run: those that failed it, or while it tries again, the newest one.
export function Failures({ dag, run, outcome }) {
  const final = outcome.failures.filter((one) => one.is_final);
  const shown = final.length ? final.slice(0, SHOWN) : outcome.state === "running" ? outcome.failures.slice(0, 1) : [];
  if (shown.length === 0 && outcome.state === "failed") {
    return h(Trouble, { error: { what: "The run failed without a failed task",
      next: "it was marked as failed, or it took too long; its audit log says which." } });
  }
  return shown.map((one) => h(C.Box, { key: `${one.task} ${one.map_index} ${one.try_number}`,
    "data-failure": one.task },
  h(Trouble, { error: { safe: one.safe,
    what: one.what ? plain(one.what) : `Task ${one.task} ended without an error of its own`,
    next: one.next || (one.what ? null : "it was killed or timed out; read its log.") } }),
  h(C.Flex, { gap: 3, wrap: "wrap", fontSize: "sm" },
    h(Inside, { to: logOf(dag, run, one) }, `Log of task ${one.task}, try ${one.try_number}`),
    !one.is_final && h(Muted, null, "Airflow tries it again."))));
}

// A failed or damaged checkpoint: the reason, the log of what failed, and what read its offsets after all.
// An error that is `shown` already is left out.
export function FailedCheckpoint({ data, dag, shown = [], onCheckpoint }) {
  const owner = useAnswer(ours(["runs"], { run_id: data.origin, dag_id: dag }), 0).data;
  const there = owner && owner.dag_id;
  const outcome = useAnswer(there ? ours(["dags", there, "outcome"], { run_id: data.origin }) : null, 0).data;
  const what = { CODE_CHANGED: `The pipeline's code changed after ${data.name} was planned`,
    DAMAGED: data.failure_message }[data.failure_reason] || `${data.failure_reason}: ${data.failure_message}`;
  const after = data.successor;
  const failed = outcome && outcome.failures[0];
  if (shown.some((text) => text.includes(data.failure_message))) {
    return h(C.Box, { "data-failed": data.name, mb: 2 }, after && h(After, { after, onCheckpoint }));
  }
  return h(C.Box, { "data-failed": data.name },
    h(Trouble, { error: { what, next: after ? null : data.failure_next } },
    after && h(After, { after, onCheckpoint })),
    failed && h(Inside, { to: logOf(there, data.origin, failed), fontSize: "sm" },
      `Log of task ${failed.task}, try ${failed.try_number}`));
}

const FATE = { COMPLETED: "read", IN_PROGRESS: "is reading", FAILED: "failed too, at" };

function After({ after, onCheckpoint }) {
  const link = onCheckpoint ? h(C.Button, { size: "2xs", variant: "outline", onClick: () => onCheckpoint(after.id) },
    after.name) : h(Name, null, after.name);
  const offsets = after.same_offsets ? "the same offsets" : "its offsets, and others after them";
  return h(C.Text, { fontSize: "sm", as: "div" }, after.status === "FAILED" ? "" : "No action needed: ", link,
    ` ${FATE[after.status] || "is at"} ${offsets}.`);
}
