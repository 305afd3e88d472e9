// Flink's configuration tab, as far as it applies, and the declared state.

import { Fingerprint } from "./details.js";
import { scheduleText } from "./overview.js";
import { PlaceLink } from "./place.js";
import { Answered, C, count, duration, Facts, h, inZone, Name, ours, Panel, Time, useAnswer } from "./ui.js";
import { Rows } from "./table.js";

export function Configuration({ pipeline, facts }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "config"]), 0);
  return h(Answered, { answer, what: "the configuration" }, (data) => h(C.Flex, { direction: "column", gap: 3 },
    h(Panel, { title: "Checkpointing" }, h(Facts, { facts: {
      "Checkpointing mode": data.mode.replace("_", " "),
      Schedule: scheduleText(facts),
      [inZone("Next run")]: nextRun(data, facts),
      Timeout: data.timeout === null ? "Not known" : duration(data.timeout),
      "Minimum pause": data.min_pause === null ? "Not known" : data.min_pause === 0 ? "None" : duration(data.min_pause),
      Deadline: data.deadline === null ? "Not set: the schedule decides" : duration(data.deadline),
      "Tolerable failed checkpoints": data.tolerable_failed_checkpoints ?? "Not known",
      "Retries of a task": retries(data.retries),
      "Concurrent checkpoints": data.max_concurrent,
      "Checkpoints after a stop": data.externalization.delete_on_cancellation ? "Deleted" : "Kept",
      "State backend": data.state_backend,
      "Checkpoint storage": data.checkpoint_storage,
      "Kafka isolation": data.isolation,
      "Code of the newest plan": h(Fingerprint, { of: data.fingerprint }),
      ...Object.fromEntries(Object.entries(data.sources).map(([name, topics]) => [`Input ${name}`,
        topics.join(", ")])),
    } })),
    h(Panel, { title: `State, as planned by ${data.as_of}`, aside: h(PlaceLink,
      { at: { pipeline, view: "columns" }, fontSize: "sm" }, "Lineage of columns") },
      h(Rows, { name: "Operators", rows: data.operators, keyOf: (o) => o.uid, columns: [
      { title: "Operator", cell: (o) => h("b", null, h(Name, null, o.uid)) },
      { title: "Kind", cell: (o) => o.kind },
      { title: "Key", cell: (o) => h(Name, null, o.keys.join(", ")) },
      { title: "Fields", cell: (o) => h(Name, { most: "34rem", minW: "16rem", whiteSpace: "normal" },
        o.fields.map((f) => `${f.name}: ${f.kind}${f.ttl ? ` (TTL ${f.ttl})` : ""}`).join(", ")) },
      { title: "Clock", cell: (o) => o.clock.replace("_", " ") },
      { title: "Sink", cell: (o) => h(Name, null, sinksOf(o).join(", ") || "–") },
    ] }))));
}

function nextRun(data, facts) {
  if (data.is_paused) return "None: the DAG is paused";
  if (data.next_run) return h(Time, { at: data.next_run });
  return facts.schedule && facts.schedule.kind === "time" ? "None: the schedule has ended" : "None is planned";
}

// Any attempt may be the last one: a task is not retried after a final failure.
const retries = (n) => (n === null ? "Not known" : `At most ${count(n)}; none after a final failure`);

const sinksOf = (o) => [o.sink, ...o.more_sinks.map((more) => more.sink)].filter(Boolean);
