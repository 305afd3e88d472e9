// How checkpoints are made: Flink's configuration tab, as far as it applies, and the declared state.

import { Answered, C, duration, Facts, h, Name, ours, Panel, useAnswer, when } from "./ui.js";
import { Rows } from "./table.js";

export function Configuration({ pipeline }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "config"]), 0);
  return h(Answered, { answer, what: "the configuration" }, (told) => h(C.Flex, { direction: "column", gap: 3 },
    h(Panel, { title: "Checkpointing" }, h(Facts, { facts: {
      "Checkpointing mode": told.mode.replace("_", " "),
      Interval: told.interval || "on demand",
      "Next run": told.is_paused ? "none: the DAG is paused" : when(told.next_run),
      Timeout: told.timeout === null ? "not known" : duration(told.timeout),
      "Least pause between two": told.min_pause === null ? "not known" : duration(told.min_pause),
      Deadline: told.deadline === null ? "none is set" : duration(told.deadline),
      "Tolerable failed checkpoints": told.tolerable_failed_checkpoints ?? "not known",
      "Retries of a task": told.retries ?? "not known",
      "Concurrent checkpoints": told.max_concurrent,
      "Manifests after a stop": told.externalization.delete_on_cancellation ? "deleted" : "stay",
      "State backend": told.state_backend,
      "Checkpoint storage": told.checkpoint_storage,
      "Kafka isolation": told.isolation,
      "Code of the newest plan": told.fingerprint,
      ...Object.fromEntries(Object.entries(told.sources).map(([name, topics]) => [`Input ${name}`,
        topics.join(", ")])),
    } })),
    h(Panel, { title: `State, as of ${told.as_of}` },
      h(Rows, { name: "Operators", rows: told.operators, keyOf: (o) => o.uid, columns: [
      { title: "Operator", cell: (o) => h("b", null, h(Name, null, o.uid)) },
      { title: "Kind", cell: (o) => o.kind },
      { title: "Key", cell: (o) => h(Name, null, o.keys.join(", ")) },
      { title: "Fields", cell: (o) => h(Name, { most: "34rem" },
        o.fields.map((f) => `${f.name}: ${f.kind}${f.ttl ? ` (ttl ${f.ttl})` : ""}`).join(", ")) },
      { title: "Clock", cell: (o) => o.clock.replace("_", " ") },
      { title: "Sink", cell: (o) => (o.sink ? h(Name, null, o.sink) : "–") },
    ] }))));
}
