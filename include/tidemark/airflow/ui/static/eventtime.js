// Event time on the live timeline: watermarks and what holds them back, open windows, and the next timers.

import { PlaceLink } from "./place.js";
import { Answered, C, count, counted, duration, Empty, h, inZone, Muted, Name, ours, Panel, React, Time, useAnswer,
  when } from "./ui.js";
import { Rows } from "./table.js";

const WAITS = { windows: ["open window", "open windows"], timers: ["timer", "timers"],
  rows: ["row that waits for a partner", "rows that wait for a partner"] };
const waitsOf = ({ what, total }) => counted(total, ...(WAITS[what] || [what, what]));
const DRAINED = "The pipeline is drained: all windows are closed, and all timers have fired.";

export function EventTimeView({ pipeline, place, change }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "event-time"]), 15000);
  return h(Answered, { answer, what: "the clocks" }, (data) => (data.sources.length + data.operators.length === 0
    ? h(Nothing, { data })
    : h(C.Flex, { direction: "column", gap: 3 },
      h(C.Text, { fontSize: "sm" }, "As of ", h(Checkpoint, { pipeline, name: data.checkpoint }),
        `, logical time ${when(data.logical_time)}`,
        data.covered_until && `, covered until ${when(data.covered_until)}`,
        `. ${data.drains ? DRAINED : ""}`),
      data.operators.length > 0 && h(Panel, { title: "Windows and timers" },
        h(Operators, { data, pipeline, place, change })),
      data.sources.length > 0 && h(Panel, { title: "Watermarks" }, h(Sources, { sources: data.sources })))));
}

const Nothing = ({ data }) => h(Empty, { title: data.checkpoint ? "No windows, timers or watermarks"
  : "No checkpoint yet" }, data.checkpoint ? "A window of a fold closes, and a timer of a process fires, when event "
  + "time has passed its end. Declare Fold(…, window=Tumbling(\"1h\")), or set timers in a Process."
  : "The first completed checkpoint shows the clocks of sources, windows and timers.");

const Checkpoint = ({ pipeline, name }) => h(PlaceLink, { at: { pipeline, view: "checkpoint",
  checkpoint: Number(name.slice(4)) } }, name);

function Operators({ data, pipeline, place, change }) {
  const chosen = data.operators.some((o) => o.uid === place.operator) ? place.operator : null;
  const toggle = (o) => change({ operator: chosen === o.uid ? "" : o.uid });
  const columns = [
    { title: "Operator", cell: (o, stop) => h(C.Box, null, h(C.Button, { ...stop, size: "2xs", variant: "outline",
      fontWeight: "bold", maxW: "100%", "aria-expanded": chosen === o.uid, "data-operator": o.uid,
      onClick: () => toggle(o) }, h(Name, { most: "12rem" }, o.uid)),
    h(Muted, { fontSize: "xs", whiteSpace: "normal", maxW: "16rem" }, o.windows || o.what)) },
    { title: "Waiting", cell: (o) => h(Waiting, { pipeline, name: data.checkpoint, o }) },
    { title: inZone("Frontier"), cell: (o) => h(C.Box, null, data.drains ? "end of time" : o.frontier
      ? h(Time, { at: o.frontier }) : "none yet", h(HeldBack, { at: o.frontier, furthest: o.furthest })) },
    { title: "Closes by", cell: (o) => h(Rule, o) },
    { title: `Late, in ${counted(data.recent, "checkpoint")}`,
      cell: (o) => h(Late, { o, pipeline }) },
    { title: `In ${data.checkpoint}`, cell: (o) => `${count(o.emitted)} emitted${
      o.what === "timers" ? `, ${count(o.fired)} fired` : ""}` },
  ];
  return h(React.Fragment, null,
    h(Rows, { name: "Operators with windows or timers", columns, rows: data.operators, keyOf: (o) => o.uid, chosen,
      onRow: toggle }),
    chosen && h(DueTimes, { key: `${chosen} ${data.checkpoint}`, pipeline, name: data.checkpoint, uid: chosen }));
}

const useDue = (pipeline, name, uid) => useAnswer(ours(["pipelines", pipeline, "checkpoints", "details",
  Number(name.slice(4)), "subtasks", uid, "due"], { limit: 20 }), 0);

// How many windows are open or timers set, when the first and the last of them are due, and how many are overdue.
function Waiting({ pipeline, name, o }) {
  const { uid } = o;
  const answer = useDue(pipeline, name, uid);
  if (answer.error) return h(Muted, { as: "span" }, answer.error.what);
  if (!answer.data) return h(C.Spinner, { size: "xs", role: "status", "aria-label": `Reading the state of ${uid}` });
  const due = answer.data;
  return h(C.Box, { "data-waiting": `${uid} ${due.total} ${due.overdue}` },
    h(C.Flex, { gap: 2, align: "center" }, h("b", null, waitsOf(due)),
      due.overdue > 0 && h(C.Badge, { colorPalette: "orange" }, `! ${count(due.overdue)} overdue`)),
    due.first.length > 0 && h(Muted, { fontSize: "xs" }, due.first[0].at === due.last
      ? `due ${when(due.last)}` : `due ${when(due.first[0].at)} to ${when(due.last)}`),
    due.first.length > 0 && o.lateness > 0 && h(Muted, { fontSize: "xs" }, `the first at a ${
      o.closes_by === "watermark" ? "watermark" : "logical time"} of ${
      when(Date.parse(due.first[0].at) + o.lateness)}`));
}

function HeldBack({ at, furthest }) {
  const ms = at && furthest ? Date.parse(furthest) - Date.parse(at) : 0;
  return ms > 0 && h(Muted, { fontSize: "xs", title: when(furthest) }, `held back by ${duration(ms)}`);
}

function Rule({ closes_by: by, follows, lateness }) {
  if (by === null) return "–";
  return h(C.Box, null, by === "watermark" ? "watermark" : "logical time",
    by === "watermark" && h(Muted, { fontSize: "xs" }, "of ", follows.map((name, n) => h("span", { key: name },
      n > 0 && ", ", h("bdi", null, name)))),
    lateness > 0 && h(Muted, { fontSize: "xs" }, `lateness ${duration(lateness)}`));
}

function Late({ o, pipeline }) {
  if (o.late === 0) return "none";
  if (o.late_to === "rows") {
    return h(C.Box, null, count(o.late), h(Muted, { fontSize: "xs" }, "rows of its late output"));
  }
  return h(C.Box, null, count(o.late), " ", h(PlaceLink, { at: { pipeline, view: "letters", operator: o.uid,
    reason: "late" } }, "dead letters"));
}

const DUE = [
  { title: () => inZone("Due at"), cell: (d) => h(C.Flex, { gap: 2, align: "center" }, h(Time, { at: d.at }),
    d.overdue && h(C.Badge, { colorPalette: "orange" }, "! overdue")) },
  { title: "How many", end: true, cell: (d) => count(d.count) },
  { title: "Keys", cell: (d) => (d.some.length === 0 ? h(Muted, { as: "span" }, "hidden")
    : h(C.Flex, { gap: 3 }, d.some.map((key, n) => h(Name, { key: n, most: "14rem" }, key)),
      d.count > d.some.length && "…")) },
];

function DueTimes({ pipeline, name, uid }) {
  const answer = useDue(pipeline, name, uid);
  return h(C.Box, { mt: 3 }, h(Answered, { answer, what: `what waits in ${uid}` }, (due) => h(DueRows, { due })));
}

// The first times at which something is due, with some of the keys.
export function DueRows({ due }) {
  const shown = due.first.reduce((sum, d) => sum + d.count, 0);
  return h(C.Box, { minW: 0, "data-due": due.uid },
    h(C.Text, { fontSize: "sm", mb: 1 }, h("b", null, h("bdi", null, due.uid)), ` has ${waitsOf(due)}`,
      shown < due.total ? ", of which these are due first:" : "."),
    due.first.length > 0 && h(Rows, { name: `Waiting in ${due.uid}`, columns: DUE, rows: due.first,
      keyOf: (d) => d.at }),
    due.overdue > 0 && h(Muted, { mt: 1 }, "Overdue: the furthest records have passed that time, and a slower "
      + "partition or input holds the frontier back."));
}

const SOURCES = [
  { title: "Source", cell: (s) => h("b", null, h(Name, null, s.name)) },
  { title: () => inZone("Watermark"), cell: (s) => h(C.Box, null,
    s.watermark ? h(Time, { at: s.watermark }) : "none yet", h(HeldBack, { at: s.watermark, furthest: s.furthest })) },
  { title: "Delay", end: true, cell: (s) => (s.delay === null ? "–" : s.delay === 0 ? "none" : duration(s.delay)) },
  { title: "Held back by", cell: (s) => s.partitions.filter((p) => p.holds_back).map((p) => h(C.Box,
    { key: p.partition }, h(Name, { most: "14rem" }, p.partition),
    h(Muted, { fontSize: "xs" }, p.seen ? `at ${when(p.seen)}` : "no record yet"))) },
  { title: "Idle", cell: (s) => (s.idle ? "all partitions" : idleOf(s) || "none") },
];

const idleOf = (s) => s.partitions.filter((p) => p.idle).map((p) => p.partition).join(", ");

const Sources = ({ sources }) => h(Rows, { name: "Watermarks", columns: SOURCES, rows: sources, keyOf: (s) => s.name });
