// A pipeline at a glance: health, counts, the latest checkpoints, charts, percentiles.

import { Chart, partitions, whole } from "./charts.js";
import { Answered, bytes, C, count, duration, h, Muted, Name, ours, Panel, React, Status, Trouble, useAnswer,
  when } from "./ui.js";
import { Publications } from "./publications.js";
import { Rows } from "./table.js";

export function Overview({ data, facts, onCheckpoint }) {
  const series = useAnswer(ours(["pipelines", data.pipeline, "checkpoints", "series"], { last: 200 }), 15000);
  return h(C.Flex, { direction: "column", gap: 3 },
    data.trouble && h(Trouble, { error: data.trouble }),
    h(Health, { data, facts }),
    h(Latest, { latest: data.latest, onCheckpoint }),
    h(Publications, { pipeline: data.pipeline, onCheckpoint }),
    h(Answered, { answer: series, what: "the charts" }, (points) => h(Charts, { points, onCheckpoint })),
    h(Percentiles, { summary: data.summary }));
}

// The strip of tiles: a problem has a sign and a word in addition to its colour.
function Health({ data, facts }) {
  const { health, counts } = data;
  return h(C.Flex, { gap: 2, wrap: "wrap", role: "list", "aria-label": "Health" },
    h(Age, { health }),
    data.run && h(Run, { run: data.run }),
    h(Tile, { name: "Lag", value: health.lag === null ? "–" : `${count(health.lag)} offsets`,
      second: "when it was planned" }),
    h(Tile, { name: "Failures in a row", value: count(health.failures_in_row), second: "since the last completed",
      ...(health.failures_in_row ? { tone: "red", sign: "✕", verdict: "failing" } : {}) }),
    h(Next, { stopped: health.stopped, facts }),
    h(Tile, { name: "Checkpoints", value: count(counts.total),
      ...(counts.damaged ? { tone: "red", sign: "!", verdict: "damaged" } : {}),
      second: ["completed", "failed", "in_progress", "restored", ...(counts.damaged ? ["damaged"] : [])]
        .map((of) => `${count(counts[of])} ${of.replace("_", " ")}`).join(" · ") }));
}

function Age({ health }) {
  const value = health.age !== null ? `${duration(health.age)} ago` : health.live === null ? "not known" : "none yet";
  const known = health.deadline === null ? null : `deadline ${duration(health.deadline)}`;
  const verdict = health.late ? { tone: "red", sign: "!", verdict: "late" }
    : health.deadline !== null && !health.stopped && health.age !== null
      ? { tone: "green", sign: "✓", verdict: "on time" } : {};
  return h(Tile, { name: "Last completed", value, ...verdict, second: h(React.Fragment, null,
    health.newest && `chk-${health.newest} on `, health.newest && h("bdi", null, health.live),
    health.newest && known && " · ", known) });
}

// A run that makes several checkpoints, while it goes on.
function Run({ run }) {
  const left = run.seconds_left === null ? "" : ` · about ${duration(run.seconds_left * 1000)} left`;
  const rate = `${count(Math.round(run.per_second))} per second`;
  return h(Tile, { name: "Run", value: `${Math.floor(100 * run.share)} %`,
    second: `${count(run.done)} of ${count(run.total)} offsets · ${rate}${left}` });
}

function Next({ stopped, facts }) {
  const schedule = facts.interval ? `UTC · schedule ${facts.interval}`
    : facts.dag_id ? "no schedule" : "no DAG is known to Airflow";
  if (stopped) return h(Tile, { name: "Next run", value: "none", tone: "red", sign: "■", verdict: "stopped",
    second: h("bdi", null, stopped.why) });
  if (facts.is_paused) return h(Tile, { name: "Next run", value: "none", tone: "orange", sign: "‖",
    verdict: "DAG is paused", second: schedule });
  return h(Tile, { name: "Next run", second: schedule,
    value: facts.next_run ? when(facts.next_run) : facts.interval ? "none planned" : "on demand" });
}

const Tile = ({ name, value, second, tone, sign, verdict }) => h(C.Box,
  { role: "listitem", borderWidth: "1px", borderColor: "border", borderRadius: "md", px: 3, py: 2, flex: "1 1 10rem",
    minW: 0, "data-tile": name, ...(tone && tone !== "green" ? { borderLeftWidth: "4px",
      borderLeftColor: `${tone}.solid` } : {}) },
  h(C.Flex, { justify: "space-between", align: "center", gap: 2 }, h(Muted, { fontSize: "xs" }, name),
    verdict && h(C.Badge, { colorPalette: tone, variant: "subtle" }, `${sign} ${verdict}`)),
  h(C.Text, { fontSize: "lg", fontWeight: "semibold", overflowWrap: "anywhere",
    color: tone && tone !== "green" ? `${tone}.fg` : undefined }, value),
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
      `${bytes(c.checkpointed_size)} of ${bytes(c.state_size)} in ${duration(c.end_to_end_duration)}, work `
        + duration(c.work_duration))),
    of("Latest failed", latest.failed, (c) => h(C.Text,
      { lineClamp: 3, title: c.failure_message, overflowWrap: "anywhere" },
      `${c.failure_reason}: `, h("bdi", null, c.failure_message))),
    of("Latest savepoint", latest.savepoint, (c) => h(C.Flex, { gap: 1, wrap: "wrap" },
      c.savepoints.map((name) => h(Name, { key: name }, name)))),
    of("Latest restore", latest.restored, (c) => h(Muted, null, "began ", h("bdi", null, c.timeline),
      c.external_path && " from savepoint ", c.external_path && h("bdi", null, c.external_path))));
}

function Charts({ points, onCheckpoint }) {
  const all = { points, onChoose: onCheckpoint };
  return h(C.Box, { display: "grid", gridTemplateColumns: "repeat(auto-fit, minmax(min(100%, 26rem), 1fr))", gap: 2 },
    h(Chart, { ...all, title: "Duration", format: duration,
      series: [{ name: "end to end", of: (p) => p.end_to_end_duration },
        { name: "work", of: (p) => p.work_duration }] }),
    h(Chart, { ...all, title: "Size", format: bytes, series: [
      { name: "incremental", of: (p) => p.checkpointed_size },
      { name: "full", of: (p) => p.state_size },
    ] }),
    h(Chart, { ...all, title: "Records", format: whole, series: [{ name: "records", of: (p) => p.records }] }),
    h(Chart, { ...all, title: "Dead letters", format: whole,
      series: [{ name: points.some((p) => p.dead_letters_at_most) ? "records rejected, at most" : "records rejected",
        of: (p) => p.dead_letters }] }),
    h(Chart, { ...all, title: "Offsets read per partition", format: whole,
      series: partitions(points, "offsets", (p) => p.offsets) }),
    h(Chart, { ...all, title: "Lag per partition", format: whole,
      series: partitions(points, "lag", (p) => p.pending) }));
}

const MEASURES = [
  ["End to end duration", "end_to_end_duration", duration],
  ["Work", "work_duration", duration],
  ["Incremental size", "checkpointed_size", bytes],
  ["Full size", "state_size", bytes],
  ["Read from Kafka", "processed_data", bytes],
  ["Records", "records", count],
];

function Percentiles({ summary }) {
  const parts = [["Min", "min"], ["Avg", "avg"], ["p50", "p50"], ["p90", "p90"], ["p95", "p95"], ["p99", "p99"],
    ["p99.9", "p999"], ["Max", "max"]];
  const columns = [
    { title: `Over ${count(summary.measured)} completed`, cell: ([name]) => name },
    ...parts.map(([title, part]) => ({ title, end: true, cell: ([, field, format]) => format(summary[field][part]) })),
  ];
  return h(Panel, { title: "Summary" }, h(Rows, { name: "Summary", columns, rows: MEASURES, keyOf: ([name]) => name }),
    summary.empty > 0 && h(Muted, { mt: 2 }, summary.empty === 1
      ? "1 empty checkpoint is left out: it read no records."
      : `${count(summary.empty)} empty checkpoints are left out: they read no records.`));
}
