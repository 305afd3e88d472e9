// A pipeline at a glance: its verdict and health; then counts, the latest checkpoints, charts and percentiles of a
// scope.

import { BacklogLine } from "./backlog.js";
import { BYTES, Chart, COUNTS, partitions, Signs, SPANS, stopsOf, whole } from "./charts.js";
import { Choice } from "./history.js";
import { Answered, Badge, bytes, C, count, counted, day, duration, Empty, h, Muted, Name, Panel, percent, React, soon,
  Status, Time, Trouble, useMemo, zoneName } from "./ui.js";
import { PlaceLink } from "./place.js";
import { PublicationsLine } from "./publications.js";
import { Rows } from "./table.js";
import { VerdictLine } from "./verdict.js";

export function Overview({ data, series, facts, timelines, scope, onScope, onCheckpoint }) {
  return h(C.Flex, { direction: "column", gap: 3 },
    h(VerdictLine, { verdict: data.verdict, schedule: facts.schedule }),
    data.trouble && h(Trouble, { error: data.trouble }),
    h(Health, { data, facts }),
    h(BacklogLine, { pipeline: data.pipeline, run: data.run }),
    h(PublicationsLine, { pipeline: data.pipeline }),
    h(ScopeChoice, { pipeline: data.pipeline, timelines, scope, onScope, counts: data.counts }),
    h(Latest, { latest: data.latest, onCheckpoint }),
    // Damage of the live timeline is shown above.
    !(data.trouble && !scope) && h(Charts, { answer: series, trouble: data.trouble, onCheckpoint }),
    h(Percentiles, { summary: data.summary }));
}

// The strip of tiles about the live timeline: a problem has a sign and a word in addition to its colour.
function Health({ data, facts }) {
  const { health, verdict } = data;
  const last = verdict.measured === 1 ? "last checkpoint" : `last ${verdict.measured} checkpoints`;
  return h(C.Flex, { gap: 2, wrap: "wrap", role: "list", "aria-label": "Health" },
    h(Age, { health, verdict }),
    h(Tile, { name: "Lag", value: health.lag === null ? "–" : `${count(health.lag)} offsets`,
      second: h(React.Fragment, null, data.trouble ? "not known · " : "when it was planned · ",
        h(PlaceLink, { at: { pipeline: data.pipeline, view: "backlog" } }, "by partition")) }),
    h(Tile, { name: "Dead letters", value: percent(verdict.rejected_share), second: h(React.Fragment, null,
      data.trouble ? "not known" : verdict.rejected_share === null ? "no records so far"
        : `of the records of the ${last}`, " · ",
      h(PlaceLink, { at: { pipeline: data.pipeline, view: "letters" } }, "by reason")) }),
    h(Tile, { name: "Failures in a row", value: count(health.failures_in_row),
      second: "since the last completed checkpoint",
      ...(health.failures_in_row ? { tone: "red", sign: "✕", verdict: "Failing" } : {}) }),
    h(Next, { stopped: health.stopped, facts, now: verdict.now }));
}

function Age({ health, verdict }) {
  const value = health.age !== null ? `${duration(health.age)} ago` : health.live === null ? "not known" : "none yet";
  const late = verdict.late_at !== null && verdict.now > verdict.late_at;
  const limit = verdict.late_at === null ? null
    : verdict.late_by === "setting" ? `deadline ${duration(health.deadline)}`
      : `${late ? "late since" : "late after"} ${soon(verdict.late_at, verdict.now)}`;
  const badge = late ? { tone: "red", sign: "!", verdict: "Late" }
    : limit && health.age !== null ? { tone: "green", sign: "✓", verdict: "On time" } : {};
  return h(Tile, { name: "Last completed", value, ...badge, second: h(React.Fragment, null,
    health.newest && `chk-${health.newest} on `, health.newest && h("bdi", null, health.live),
    health.newest && limit && " · ", limit) });
}

// When the schedule runs, in its own time zone.
export function scheduleText(facts, { end = true } = {}) {
  const { schedule } = facts;
  if (schedule === undefined) return "…";
  if (!schedule) return facts.dag_id ? "No schedule known" : "Airflow knows no DAG for it";
  if (schedule.kind === "manual") return "Manual";
  const ended = end && schedule.end && !facts.next_run ? `, until ${day(schedule.end)}` : "";
  return `${schedule.text}${schedule.zone ? ` (${schedule.zone})` : ""}${ended}`;
}

function Next({ stopped, facts, now }) {
  const schedule = h("bdi", null, scheduleText(facts, { end: false }));
  const none = { name: "Next run", value: "none" };
  if (stopped) return h(Tile, { ...none, tone: "orange", sign: "■", verdict: "Stopped",
    second: h("bdi", null, stopped.why) });
  // The list of pipelines, which knows it, is not here yet.
  if (facts.schedule === undefined) return h(Tile, { ...none, value: "…", second: "…" });
  if (facts.is_paused) return h(Tile, { ...none, tone: "orange", sign: "‖", verdict: "DAG is paused",
    second: schedule });
  const kind = facts.schedule ? facts.schedule.kind : null;
  if (facts.next_run) return h(Tile, { name: "Next run", value: soon(facts.next_run, now), second: schedule });
  if (kind === "time" && facts.schedule.end) return h(Tile, { ...none, second: h(React.Fragment, null,
    `end date ${day(facts.schedule.end)} reached · `, schedule) });
  return h(Tile, { name: "Next run", value: { assets: "after events", manual: "manual" }[kind] || "none",
    second: kind === "manual" ? "no schedule" : schedule });
}

const Tile = ({ name, value, second, tone, sign, verdict }) => h(C.Box,
  { role: "listitem", borderWidth: "1px", borderColor: "border", borderRadius: "md", px: 3, py: 2, flex: "1 1 10rem",
    minW: 0, "data-tile": name, ...(tone && tone !== "green" ? { borderLeftWidth: "4px",
      borderLeftColor: `${tone}.solid` } : {}) },
  h(C.Flex, { justify: "space-between", align: "center", gap: 2 }, h(Muted, { fontSize: "xs" }, name),
    verdict && h(Badge, { tone, sign, fontSize: "xs", py: 0 }, verdict)),
  h(C.Text, { fontSize: "lg", fontWeight: "semibold", overflowWrap: "anywhere",
    color: tone && tone !== "green" ? `${tone}.fg` : undefined }, value),
  second && h(Muted, { fontSize: "xs", overflowWrap: "anywhere" }, second));

const COUNTED = [["completed", "completed"], ["failed", "failed"], ["in_progress", "in progress"],
  ["restored", "restored"], ["damaged", "damaged"]];

// What is not completed leads to its lines of the history.
const LINES = ["failed", "in_progress", "damaged"];

// Everything below is about these checkpoints.
function ScopeChoice({ pipeline, timelines, scope, onScope, counts }) {
  const live = timelines.find((t) => t.is_live);
  const options = [["", live ? `Live timeline (${live.timeline})` : "Live timeline"], ["all", "All timelines"],
    ...timelines.filter((t) => !t.is_live).map((t) => [`timeline:${t.timeline}`, `${t.timeline} (${t.fate})`])];
  const parts = COUNTED.filter(([of]) => of !== "damaged" || counts.damaged)
    .map(([of, word]) => {
      const text = `${count(counts[of])} ${word}`;
      return [" · ", counts[of] && LINES.includes(of) ? h(PlaceLink, { key: of, at: { pipeline, view: "history",
        status: of.toUpperCase() } }, text) : text];
    });
  // The address may name a timeline that the tree does not have yet.
  if (!options.some(([id]) => id === scope)) options.push([scope, scope.replace("timeline:", "")]);
  return h(C.Flex, { gap: 3, align: "center", wrap: "wrap", borderTopWidth: "1px", borderColor: "border", pt: 3 },
    h(Choice, { label: "Checkpoints of", value: scope, onChange: onScope, options }),
    h(C.Text, { fontSize: "sm", "data-counts": true }, h("b", null, counted(counts.total, "checkpoint")), parts));
}

const at = (line) => line.failure_timestamp ?? line.restore_timestamp ?? line.trigger_timestamp;

function Latest({ latest, onCheckpoint }) {
  const of = (title, line, second) => h(Panel, { key: title, title, flex: "1 1 14rem" },
    line === null
      ? h(Muted, null, "None")
      : h(C.Box, { fontSize: "sm" },
        h(C.Flex, { gap: 2, align: "center", wrap: "wrap" },
          h(C.Button, { size: "xs", variant: "outline", onClick: () => onCheckpoint(line.id) }, `chk-${line.id}`),
          line.status && h(Status, { status: line.status })),
        h(Muted, { as: "div", mt: 1 }, h(Time, { at: at(line), as: "time" }), ` ${zoneName()}, on `,
          h("bdi", null, line.timeline)),
        second(line)));
  return h(C.Flex, { gap: 2, wrap: "wrap" },
    of("Latest completed", latest.completed, (c) => h(Muted, null, c.records === 0 && c.keys === 0
      ? "Empty: it read no records"
      : `${counted(c.records, "record")}, ${bytes(c.checkpointed_size)} of ${bytes(c.state_size)} in ${
        duration(c.end_to_end_duration)} (work ${duration(c.work_duration)})`)),
    of("Latest failed", latest.failed, (c) => h(C.Text,
      { lineClamp: 3, title: c.failure_message, overflowWrap: "anywhere" },
      h("b", null, `${c.failure_reason}: `), h("bdi", null, c.failure_message))),
    of("Latest savepoint", latest.savepoint, (c) => h(Muted, { as: "div" }, c.savepoints.map((name, n) => h("span",
      { key: name }, n > 0 && ", ", h(Name, { most: "12rem" }, name))))),
    of("Latest restore", latest.restored, (r) => h(Muted, { as: "div" }, r.is_savepoint
      ? h("span", null, "from savepoint ", h(Name, { most: "12rem" }, r.external_path)) : "from a checkpoint")));
}

function Charts({ answer, trouble, onCheckpoint }) {
  if (trouble && answer.error && answer.error.what === trouble.what) return null;
  return h(Answered, { answer, what: "the charts" }, (data) => h(Drawn, { data, onCheckpoint }));
}

function Drawn({ data, onCheckpoint }) {
  const { points, marks } = data;
  const stops = useMemo(() => stopsOf(points, marks), [data]);
  if (points.length === 0) return h(Empty, { title: "No checkpoint is completed yet" },
    "Durations, sizes and lags are drawn from the first one on.");
  const all = { points, stops, onChoose: onCheckpoint };
  const bounded = points.some((p) => p.dead_letters_at_most);
  const caption = points.length < data.of
    ? `The last ${count(points.length)} of ${count(data.of)} completed checkpoints`
    : counted(points.length, "completed checkpoint");
  return h(React.Fragment, null,
    h(C.Flex, { justify: "space-between", gap: 3, wrap: "wrap", align: "baseline" },
      h(Muted, null, `${caption}, by the time of their trigger (${zoneName()})`), h(Signs, { stops })),
    h(C.Grid, { gap: 3, templateColumns: "repeat(auto-fill, minmax(min(26rem, 100%), 1fr))", "data-scope":
      data.scope.timeline || "all" },
    h(Chart, { ...all, title: "Duration", format: duration, units: SPANS,
      series: [{ name: "end to end", of: (p) => p.end_to_end_duration },
        { name: "work", of: (p) => p.work_duration }] }),
    h(Chart, { ...all, title: "Size", format: bytes, units: BYTES, series: [
      { name: "incremental", of: (p) => p.checkpointed_size },
      { name: "full", of: (p) => p.state_size },
    ] }),
    h(Chart, { ...all, title: "Records", format: whole, units: COUNTS,
      series: [{ name: "records", of: (p) => p.records }] }),
    h(Chart, { ...all, title: "Dead letters", format: whole, units: COUNTS,
      series: [{ name: bounded ? "records rejected, at most" : "records rejected", of: (p) => p.dead_letters }] }),
    h(Chart, { ...all, title: "Offsets read per partition", format: whole, units: COUNTS,
      series: partitions(points, "offsets", (p) => p.offsets) }),
    h(Chart, { ...all, title: "Lag per partition", format: whole, units: COUNTS,
      series: partitions(points, "lag", (p) => p.pending) })));
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
  if (summary.measured + summary.empty === 0) return null;
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
