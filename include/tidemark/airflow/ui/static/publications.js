// The publications of a pipeline: the checkpoint that each target has, how far it is behind, why, and its last steps.

import { Command } from "./branch_actions.js";
import { logOf, plain } from "./failure.js";
import { PlaceLink } from "./place.js";
import { Answered, Badge, bytes, C, count, counted, dagRun, duration, Empty, h, inFull, Inside, inZone, Muted, Name,
  ours, Panel, React, Time, Trouble, useAnswer } from "./ui.js";
import { Rows } from "./table.js";

const VERDICTS = { BLOCKED: ["red", "■", "Blocked"], FAILING: ["red", "✕", "Failing"],
  BEHIND: ["orange", "!", "Behind"], NOT_STARTED: ["gray", "", "Not started"], PUBLISHING: ["blue", "…", "Publishing"],
  UP_TO_DATE: ["green", "✓", "Up to date"],
  DROPPED: ["gray", "■", "Dropped"] };
const KINDS = { "delta-mirror": "Delta table", "delta-changelog": "Delta changelog",
  "postgresql-upsert": "PostgreSQL table", "kafka-upsert": "Kafka topic" };
const MODES = { difference: "Changes only", rebuild: "All rows", drop: "Dropped" };
const look = (verdict) => VERDICTS[verdict] || ["gray", "", verdict];
const needsAttention = (p) => ["BLOCKED", "FAILING"].includes(p.verdict);

const useLags = (pipeline) => useAnswer(ours(["pipelines", pipeline, "publications"]), 15000);

function State({ verdict }) {
  const [tone, sign, word] = look(verdict);
  return h(Badge, { tone, sign, "data-publication-state": verdict }, word);
}

// One line on the overview, if the pipeline publishes anything.
export function PublicationsLine({ pipeline }) {
  const { data } = useLags(pipeline);
  if (!data || data.length === 0) return null;
  const order = Object.keys(VERDICTS);
  const shown = [...data].sort((a, b) => order.indexOf(a.verdict) - order.indexOf(b.verdict)).slice(0, 4);
  return h(C.Flex, { role: "group", "aria-label": "Publications", gap: 3, align: "center", wrap: "wrap", px: 3, py: 2,
    borderWidth: "1px", borderColor: "border", borderRadius: "md", fontSize: "sm",
    ...(data.some(needsAttention) ? { borderLeftWidth: "4px", borderLeftColor: "red.solid" } : {}) },
  h("b", null, "Publications"),
  shown.map((p) => h(C.Flex, { key: p.publication, gap: 2, align: "center", minW: 0 }, h(State, p),
    h(PlaceLink, { at: { pipeline, view: "publications", publication: p.publication } },
      h(Name, { most: "14rem" }, p.publication)), p.behind > 0 && h(Muted, { as: "span" }, lagOf(p)))),
  data.length > shown.length && h(PlaceLink, { at: { pipeline, view: "publications" } },
    `${data.length - shown.length} more`));
}

// 3 checkpoints, 12,431 records, 2 h.
function lagOf(p) {
  if (p.behind === 0) return p.verdict === "DROPPED" ? "–" : "none";
  if (p.state === "new") {
    return p.records === null ? "all checkpoints" : [p.behind === 1 ? "the only checkpoint"
      : `all ${counted(p.behind, "checkpoint")}`, counted(p.records, "record")].join(", ");
  }
  return [counted(p.behind, "checkpoint"), p.records !== null && counted(p.records, "record"),
    p.late_ms !== null && duration(p.late_ms)].filter(Boolean).join(", ");
}

export function PublicationsView({ pipeline, place, change }) {
  const answer = useLags(pipeline);
  return h(Answered, { answer, what: "the publications" }, (data) => (data.length === 0 ? h(Nothing, { pipeline })
    : h(C.Flex, { direction: "column", gap: 3 },
      data.filter(needsAttention).map((p) => h(Attention, { key: p.publication, p })),
      h(Panel, { title: "Publications" }, h(Lags, { data, pipeline, place, change })))));
}

const Nothing = ({ pipeline }) => h(Empty, { title: "No publications" }, "A publication keeps a Delta table, a table "
  + "of PostgreSQL or a compacted topic equal to the state of an operator. Declare one with publish=[…] at the "
  + "operator; it shows here with the next checkpoint.", h(C.Flex, { justify: "center", mt: 3 }, h(Command,
  { text: `tidemark publication run ${pipeline}`, justify: "center" })));

// Why a publication needs a person: the three lines of the error, and its log.
function Attention({ p }) {
  const { task } = p;
  const failure = task && task.failure;
  const error = failure && failure.what ? failure : { what: `${p.publication}: ${p.why}`,
    next: failure ? "read the log of its task." : task && task.is_paused ? `unpause DAG ${task.dag_id}.` : "" };
  return h(C.Box, { "data-publication-trouble": p.publication },
    h(Trouble, { error: { ...error, what: failure && failure.what ? `${p.publication}: ${plain(failure.what)}`
      : error.what } },
      task && h(C.Flex, { gap: 3, wrap: "wrap", fontSize: "sm", mt: 1 },
        failure && h(Inside, { to: logOf(task.dag_id, task.run_id, failure) }, `Log of task ${failure.task}, try ${
          failure.try_number}`),
        h(Inside, { to: `/dags/${encodeURIComponent(task.dag_id)}` }, "DAG ", h(Name, null, task.dag_id)))));
}

function Lags({ data, pipeline, place, change }) {
  const chosen = data.some((p) => p.publication === place.publication) ? place.publication : null;
  const toggle = (p) => change({ publication: chosen === p.publication ? "" : p.publication });
  const columns = [
    { title: "Publication", cell: (p, stop) => h(C.Button, { ...stop, size: "2xs", variant: "outline", maxW: "100%",
      fontWeight: "bold", "aria-expanded": chosen === p.publication, "data-publication": p.publication,
      onClick: () => toggle(p) }, h(Name, { most: "14rem" }, p.publication)) },
    { title: "State", cell: (p) => h(C.Box, null, h(State, p), h(Muted, { fontSize: "xs", whiteSpace: "normal",
      minW: "12rem" }, p.why)) },
    { title: "Target has", cell: (p) => (p.checkpoint === null ? "–" : h(C.Box, null, h(PlaceLink,
      { at: { pipeline, view: "checkpoint", checkpoint: Number(p.checkpoint.slice(4)) } }, p.checkpoint),
    p.newest && p.behind > 0 && ` of ${p.newest}`, h(Muted, { fontSize: "xs" }, `as of ${inFull(p.as_of)}`))) },
    { title: "Behind", cell: (p) => h("span", { "data-lag": p.behind }, lagOf(p)) },
    { title: inZone("Published"), cell: (p) => h(Time, { at: p.published_at }) },
    { title: "Operator", cell: (p) => h(Name, { most: "12rem" }, p.uid) },
    { title: "Target", cell: (p) => h(C.Box, null, h(Muted, { fontSize: "xs" }, KINDS[p.kind] || p.kind),
      h(Name, { most: "26rem", mono: true }, p.place)) },
    { title: "Newest run", cell: (p) => h(NewestRun, p) },
  ];
  return h(React.Fragment, null,
    h(Rows, { name: "Publications", columns, rows: data, keyOf: (p) => p.publication, chosen, onRow: toggle }),
    chosen && h(Steps, { key: chosen, pipeline, publication: chosen }));
}

// A state of Airflow's, as its pages write it.
const wordOf = (state) => `${state[0].toUpperCase()}${state.slice(1)}`.replace(/_/g, " ");

function NewestRun({ task }) {
  if (!task) return h(Muted, { as: "span" }, "no DAG publishes it");
  if (!task.run_id) return h(Inside, { to: `/dags/${encodeURIComponent(task.dag_id)}` }, h(Name, null, task.dag_id));
  return h(Inside, { to: dagRun(task.dag_id, task.run_id) }, wordOf(task.state || "scheduled"));
}

const STEPS = (pipeline) => [
  { title: "Checkpoint", cell: (s) => h(PlaceLink, { at: { pipeline, view: "checkpoint",
    checkpoint: Number(s.checkpoint.slice(4)) } }, s.checkpoint) },
  { title: inZone("Published"), cell: (s) => h(Time, { at: s.published_at }) },
  { title: "Rows sent", cell: (s) => MODES[s.mode] || s.mode },
  { title: "Rows written", end: true, cell: (s) => count(s.inserted) },
  { title: "Rows removed", end: true, cell: (s) => count(s.deleted) },
  { title: "Size", end: true, cell: (s) => bytes(s.bytes) },
  { title: "Version", end: true, cell: (s) => h("bdi", null, s.version || "–") },
  { title: "Timeline", cell: (s) => h(Name, { most: "12rem" }, s.timeline) },
];

// The last steps of a publication, and the commands of a terminal for it.
function Steps({ pipeline, publication }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "publications", publication]), 30000);
  return h(C.Box, { mt: 3, "data-steps": publication }, h(Answered, { answer, what: `the steps of ${publication}` },
    (data) => (data.status.state === "new" ? h(Command, { why: "The first step writes the state of the newest "
      + "checkpoint. A task of publication_dag makes it, or this command:",
    text: `tidemark publication run ${pipeline} ${publication}` }) : h(C.Flex, { direction: "column", gap: 3 },
      h(C.Text, { fontSize: "sm", fontWeight: "semibold", overflowWrap: "anywhere" }, "Last steps of ",
        h("bdi", null, publication)),
      h(Rows, { name: `Steps of ${publication}`, columns: STEPS(pipeline), rows: data.steps,
        keyOf: (s) => `${s.published_at} ${s.version}` }),
      h(C.Box, { as: "details", fontSize: "sm" }, h("summary", null, "Commands"),
        h(C.Flex, { direction: "column", gap: 2, mt: 2 }, ["run", "verify", "rebuild", "drop"].map((verb) => h(Command,
          { key: verb, text: `tidemark publication ${verb} ${pipeline} ${publication}` }))))))));
}
