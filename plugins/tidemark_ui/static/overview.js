// What a pipeline has done, at a glance: health, counts, the latest of each kind, charts, percentiles.

import { Chart, lags, whole } from "./charts.js";
import { Answered, bytes, C, count, duration, h, Muted, Name, ours, Panel, Status, Trouble } from "./ui.js";
import { useAnswer, when } from "./ui.js";
import { Rows } from "./table.js";

export function Overview({ told, facts, onCheckpoint }) {
  const series = useAnswer(ours(["pipelines", told.pipeline, "checkpoints", "series"], { last: 200 }), 15000);
  return h(C.Flex, { direction: "column", gap: 3 },
    told.trouble && h(Trouble, { error: told.trouble }),
    h(Health, { told, facts }),
    h(Latest, { latest: told.latest, onCheckpoint }),
    h(Answered, { answer: series, what: "the charts" }, (points) => h(Charts, { points, onCheckpoint })),
    h(Percentiles, { summary: told.summary, completed: told.counts.completed }));
}

function Health({ told, facts }) {
  const { health, counts } = told;
  const stopped = health.stopped && `stopped: ${health.stopped.why}`;
  const none = health.live === null ? "not known" : "none yet";
  const planned = facts.next_run ? when(facts.next_run) : facts.interval ? "none planned" : "on demand";
  const next = stopped || (facts.is_paused ? "DAG is paused" : planned);
  return h(C.Flex, { gap: 2, wrap: "wrap", role: "group", "aria-label": "Health" },
    h(Tile, { name: "Last completed", value: health.age === null ? none : `${duration(health.age)} ago`,
      tone: health.late ? "red.fg" : undefined, second: [health.newest && `chk-${health.newest} on ${health.live}`,
        health.late && `late: the deadline is ${duration(health.deadline)}`].filter(Boolean).join(" · ") }),
    h(Tile, { name: "Lag", value: health.lag === null ? "–" : `${count(health.lag)} offsets`,
      second: "when it was planned" }),
    h(Tile, { name: "Failures in a row", value: count(health.failures_in_row),
      tone: health.failures_in_row ? "red.fg" : undefined, second: "since the last completed" }),
    h(Tile, { name: "Next run", value: next, second: facts.interval || (facts.dag_id ? "no schedule"
      : "no DAG is known to Airflow"), tone: stopped ? "red.fg" : undefined }),
    h(Tile, { name: "Checkpoints", value: count(counts.total),
      second: [`${count(counts.completed)} completed`, `${count(counts.failed)} failed`,
      `${count(counts.in_progress)} in progress`, `${count(counts.restored)} restored`,
      ...(counts.damaged ? [`${count(counts.damaged)} damaged`] : [])].join(" · ") }));
}

const Tile = ({ name, value, second, tone }) => h(C.Box,
  { borderWidth: "1px", borderColor: "border", borderRadius: "md", px: 3, py: 2, flex: "1 1 10rem", minW: 0 },
  h(Muted, { fontSize: "xs" }, name),
  h(C.Text, { fontSize: "lg", fontWeight: "semibold", overflowWrap: "anywhere", color: tone }, value),
  second && h(Muted, { fontSize: "xs", overflowWrap: "anywhere" }, second));

const at = (line) => line.failure_timestamp ?? line.restore_timestamp ?? line.trigger_timestamp;

function Latest({ latest, onCheckpoint }) {
  const of = (title, line, second) => h(Panel, { key: title, title, flex: "1 1 14rem" },
    line === null
      ? h(Muted, null, "none")
      : h(C.Box, { fontSize: "sm" },
        h(C.Flex, { gap: 2, align: "center", wrap: "wrap" },
          h(C.Button, { size: "xs", variant: "outline", onClick: () => onCheckpoint(line.id) }, `chk-${line.id}`),
          line.status && h(Status, { status: line.status })),
        h(Muted, { mt: 1 }, `${when(at(line))} UTC, on `, h("bdi", null, line.timeline)),
        second(line)));
  return h(C.Flex, { gap: 2, wrap: "wrap" },
    of("Latest completed", latest.completed, (c) => h(Muted, null,
      `${bytes(c.checkpointed_size)} of ${bytes(c.state_size)} in ${duration(c.end_to_end_duration)}`)),
    of("Latest failed", latest.failed, (c) => h(C.Text,
      { lineClamp: 3, title: c.failure_message, overflowWrap: "anywhere" },
      `${c.failure_reason}: ${c.failure_message}`)),
    of("Latest savepoint", latest.savepoint, (c) => h(C.Flex, { gap: 1, wrap: "wrap" },
      c.savepoints.map((name) => h(Name, { key: name }, name)))),
    of("Latest restore", latest.restored, (c) => h(Muted, null, "began ", h("bdi", null, c.timeline),
      c.external_path && " from savepoint ", c.external_path && h("bdi", null, c.external_path))));
}

function Charts({ points, onCheckpoint }) {
  const all = { points, onChoose: onCheckpoint };
  return h(C.Box, { display: "grid", gridTemplateColumns: "repeat(auto-fit, minmax(30rem, 1fr))", gap: 2 },
    h(Chart, { ...all, title: "Duration", tell: duration,
      series: [{ name: "end to end", of: (p) => p.end_to_end_duration }] }),
    h(Chart, { ...all, title: "Size", tell: bytes, series: [
      { name: "incremental", of: (p) => p.checkpointed_size, tone: "blue.solid" },
      { name: "full", of: (p) => p.state_size, tone: "orange.solid" },
    ] }),
    h(Chart, { ...all, title: "Records", tell: whole, series: [
      { name: "records", of: (p) => p.records, tone: "blue.solid" },
      { name: "dead letters", of: (p) => p.dead_letters, tone: "red.solid" },
    ] }),
    h(Chart, { ...all, title: "Lag per partition", tell: whole, series: lags(points) }));
}

const MEASURES = [
  ["End to end duration", "end_to_end_duration", duration],
  ["Incremental size", "checkpointed_size", bytes],
  ["Full size", "state_size", bytes],
  ["Read from Kafka", "processed_data", bytes],
  ["Records", "records", count],
];

function Percentiles({ summary, completed }) {
  const parts = [["Min", "min"], ["Avg", "avg"], ["p50", "p50"], ["p90", "p90"], ["p95", "p95"], ["p99", "p99"],
    ["p99.9", "p999"], ["Max", "max"]];
  const columns = [
    { title: `Over ${count(completed)} completed`, cell: ([name]) => name },
    ...parts.map(([title, part]) => ({ title, end: true, cell: ([, field, tell]) => tell(summary[field][part]) })),
  ];
  return h(Panel, { title: "Summary" }, h(Rows, { name: "Summary", columns, rows: MEASURES,
    keyOf: ([name]) => name }));
}
