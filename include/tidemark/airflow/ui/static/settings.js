// Flink's configuration tab, as far as it applies, and the declared state.

import { Answered, C, duration, Facts, h, Name, ours, Panel, useAnswer, when } from "./ui.js";
import { Rows } from "./table.js";

export function Configuration({ pipeline }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "config"]), 0);
  return h(Answered, { answer, what: "the configuration" }, (data) => h(C.Flex, { direction: "column", gap: 3 },
    h(Panel, { title: "Checkpointing" }, h(Facts, { facts: {
      "Checkpointing mode": data.mode.replace("_", " "),
      Interval: data.interval || "on demand",
      "Next run": data.is_paused ? "none: the DAG is paused" : when(data.next_run),
      Timeout: data.timeout === null ? "not known" : duration(data.timeout),
      "Least pause between two": data.min_pause === null ? "not known" : duration(data.min_pause),
      Deadline: data.deadline === null ? "none is set" : duration(data.deadline),
      "Tolerable failed checkpoints": data.tolerable_failed_checkpoints ?? "not known",
      "Retries of a task": data.retries ?? "not known",
      "Concurrent checkpoints": data.max_concurrent,
      "Manifests after a stop": data.externalization.delete_on_cancellation ? "deleted" : "stay",
      "State backend": data.state_backend,
      "Checkpoint storage": data.checkpoint_storage,
      "Kafka isolation": data.isolation,
      "Code of the newest plan": data.fingerprint,
      ...Object.fromEntries(Object.entries(data.sources).map(([name, topics]) => [`Input ${name}`,
        topics.join(", ")])),
    } })),
    h(Panel, { title: `State, as of ${data.as_of}` },
      h(Rows, { name: "Operators", rows: data.operators, keyOf: (o) => o.uid, columns: [
      { title: "Operator", cell: (o) => h("b", null, h(Name, null, o.uid)) },
      { title: "Kind", cell: (o) => o.kind },
      { title: "Key", cell: (o) => h(Name, null, o.keys.join(", ")) },
      { title: "Fields", cell: (o) => h(Name, { most: "34rem" },
        o.fields.map((f) => `${f.name}: ${f.kind}${f.ttl ? ` (ttl ${f.ttl})` : ""}`).join(", ")) },
      { title: "Clock", cell: (o) => o.clock.replace("_", " ") },
      { title: "Sink", cell: (o) => h(Name, null, sinksOf(o).join(", ") || "–") },
    ] }))));
}

const sinksOf = (o) => [o.sink, ...o.more_sinks.map((more) => more.sink)].filter(Boolean);
