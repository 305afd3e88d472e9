// The backlog: how far a run of several checkpoints is, what is left, and how far each partition was read.

import { PlaceLink } from "./place.js";
import { Answered, bytes, C, count, counted, duration, Empty, Facts, h, inFull, inZone, Muted, Name, ours, Panel, React,
  Time, useAnswer } from "./ui.js";
import { Rows } from "./table.js";

const useBacklog = (pipeline) => useAnswer(ours(["pipelines", pipeline, "backlog"]), 10000);
const perSecond = (rate) => `${count(rate < 1 ? rate.toFixed(2) : Math.round(rate))} per second`;

function Bar({ share, name, h: high = 3 }) {
  const percent = Math.floor(100 * share);
  return h(C.Box, { role: "progressbar", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 100,
    "aria-valuenow": percent, h: high, borderRadius: "sm", bg: "bg.emphasized", overflow: "hidden", w: "100%" },
  h(C.Box, { h: "100%", bg: "blue.solid", w: `${Math.min(100, 100 * share)}%` }));
}

function left(run) {
  if (run.seconds_left === null) return "";
  return `about ${duration(1000 * run.seconds_left)} left`;
}

// On the overview, while a run that makes several checkpoints continues.
export function BacklogLine({ pipeline, run }) {
  if (!run) return null;
  return h(C.Box, { role: "group", "aria-label": "Backlog", borderWidth: "1px", borderColor: "border",
    borderRadius: "md", px: 3, py: 2, "data-backlog": `${run.done}/${run.total}` },
  h(C.Flex, { gap: 3, wrap: "wrap", align: "baseline", fontSize: "sm", mb: 1 },
    h("b", null, `Backlog ${Math.floor(100 * run.share)} %`),
    h("span", null, `${count(run.done)} of ${count(run.total)} offsets`), h("span", null, perSecond(run.per_second)),
    left(run) && h("span", null, left(run)), h(PlaceLink, { at: { pipeline, view: "backlog" } }, "By partition")),
  h(Bar, { share: run.share, name: "Backlog" }));
}

export function BacklogView({ pipeline, onOverview }) {
  const answer = useBacklog(pipeline);
  return h(C.Flex, { direction: "column", gap: 3 },
    h(C.Flex, { as: "nav", "aria-label": "Breadcrumb", gap: 2, align: "center", fontSize: "sm" },
      h(C.Button, { size: "xs", variant: "ghost", px: 1, color: "fg.info", onClick: onOverview }, "Overview"),
      h("span", { "aria-hidden": true }, "›"),
      h(C.Heading, { as: "h2", size: "md", "aria-current": "page" }, "Backlog")),
    h(Answered, { answer, what: "the backlog" }, (data) => (data.checkpoint === null
      ? h(Empty, { title: "No checkpoint yet" }, "The first one shows how far each partition was read.")
      : h(React.Fragment, null, h(Progress, { data, pipeline }), h(Partitions, { data })))));
}

function Progress({ data, pipeline }) {
  const { run } = data;
  const at = h(PlaceLink, { at: { pipeline, view: "checkpoint", checkpoint: Number(data.checkpoint.slice(4)) } },
    data.checkpoint);
  if (!run) {
    return h(Panel, { title: data.lag > 0 ? `${count(data.lag)} offsets behind` : "Nothing was left" },
      h(C.Text, { fontSize: "sm" }, at, `, planned ${inFull(data.planned_at)}, `, data.lag > 0
        ? `left ${count(data.lag)} offsets in Kafka.` : "read all that Kafka had."),
      h(Muted, { mt: 1 }, "A run makes several checkpoints, and shows its progress here, if the pipeline declares "
        + "max_records or max_bytes and more than that waits."));
  }
  return h(Panel, { title: `${Math.floor(100 * run.share)} % of the backlog is read` },
    h(Bar, { share: run.share, name: "Backlog" }),
    h(C.Box, { mt: 3 }, h(Facts, { facts: {
      Read: `${count(run.done)} of ${count(run.total)} offsets, in ${counted(data.checkpoints, "checkpoint")}`,
      Left: [`${count(run.total - run.done)} offsets`, data.bytes_left !== null && `about ${bytes(data.bytes_left)}`,
        data.checkpoints_left !== null
          && `about ${counted(data.checkpoints_left, "more checkpoint")}`].filter(Boolean).join(", "),
      Rate: perSecond(run.per_second),
      [inZone("Expected end")]: data.ends_at && h("span", null, h(Time, { at: data.ends_at, as: "time" }),
        `, ${left(run)} after ${data.checkpoint}`),
      "Offsets per checkpoint": data.reduced_to ? `reduced to ${count(data.reduced_to)}, because larger ones failed`
        : null,
      "Newest checkpoint": at,
      Run: run.run,
    } })));
}

const COLUMNS = [
  { title: "Partition", cell: (p) => h(Name, null, p.partition) },
  { title: "Next offset", end: true, cell: (p) => count(p.position) },
  { title: "Lag", end: true, cell: (p) => count(p.lag) },
];
const RUN = [
  { title: "Of the run", cell: (p) => p.run_end !== null && h(C.Flex, { align: "center", gap: 2, minW: "12rem" },
    h(Bar, { share: shareOf(p), name: `Backlog of ${p.partition}`, h: 2 }),
    h("span", null, `${Math.floor(100 * shareOf(p))} %`)) },
  { title: "Left in the run", end: true, cell: (p) => (p.run_end === null ? "–"
    : count(Math.max(0, p.run_end - Math.max(p.position, p.run_start)))) },
];

const shareOf = (p) => (p.run_end > p.run_start
  ? Math.max(0, Math.min(1, (p.position - p.run_start) / (p.run_end - p.run_start))) : 1);

const Partitions = ({ data }) => h(Panel, { title: "Partitions" },
  h(Rows, { name: "Partitions", columns: data.run ? [...COLUMNS, ...RUN] : COLUMNS, rows: data.partitions,
    keyOf: (p) => p.partition }),
  h(Muted, { mt: 1 }, `Lag: offsets that the log held beyond the next offset when ${data.checkpoint} was planned.`));
