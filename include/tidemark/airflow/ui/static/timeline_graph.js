// The timelines as a graph: a lane for each, a dot for each checkpoint in the order of their triggers. A window of the
// history is drawn, so that thousands of checkpoints stay usable. One chosen dot is opened, two are compared.

import { shade } from "./charts.js";
import { Answered, C, checkpointsOf, color, count, h, Muted, Name, useAnswer, useEffect, useMemo, useRef, useState,
  when, zoneName } from "./ui.js";
import { Middle } from "./table.js";

const PAGE = 100;
const STEP = 24;
const LANE = 44;
const TOP = 26;
const LEFT = 16;
const TICK = 7;
const WORDS = { COMPLETED: "completed", FAILED: "failed", IN_PROGRESS: "in progress", DAMAGED: "damaged" };

export function TimelineGraph({ pipeline, tree, onCheckpoint, onCompare }) {
  const [offset, setOffset] = useState(0);
  const answer = useAnswer(checkpointsOf(pipeline, { limit: PAGE, offset: offset || undefined }), 15000);
  return h(Answered, { answer, what: "the checkpoints" }, (data) => (data.history.length === 0
    ? h(Muted, null, "No checkpoint was planned yet.")
    : h(C.Box, null,
      h(Drawn, { key: offset, lines: data.history, tree, onCheckpoint, onCompare }),
      data.matching > PAGE && h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm" },
        h(C.Button, { size: "xs", variant: "outline", disabled: offset + PAGE >= data.matching,
          onClick: () => setOffset(offset + PAGE) }, "Older"),
        h("span", { role: "status", "data-window": true }, `${count(data.history.length)} of ${count(data.matching)}`
          + ` checkpoints are drawn, from ${data.history[data.history.length - 1].name} to ${data.history[0].name}`),
        h(C.Button, { size: "xs", variant: "outline", disabled: offset === 0,
          onClick: () => setOffset(Math.max(0, offset - PAGE)) }, "Newer")))));
}

// Places of lanes and dots, and the line of the live head with its ancestors.
function laid(lines, tree) {
  const dots = [...lines].reverse().map((line, n) => ({ ...line, x: LEFT + n * STEP }));
  const used = new Set(dots.map((d) => d.timeline));
  const begun = new Set(dots.map((d) => d.name));
  const open = (t) => t.is_live || ["fork", "not live"].includes(t.fate);
  const lanes = tree.filter((t) => used.has(t.timeline) || (open(t) && begun.has(t.began_at)));
  const known = new Set(lanes.map((t) => t.timeline));
  for (const timeline of used) if (!known.has(timeline)) lanes.push({ timeline, fate: "", savepoints: [] });
  const rows = new Map(lanes.map((t, n) => [t.timeline, TOP + n * LANE]));
  for (const dot of dots) dot.y = rows.get(dot.timeline);
  const by = new Map(dots.map((d) => [d.id, d]));
  // A damaged manifest does not say what is before it: the last one of its lane.
  const before = (dot) => by.get(dot.parent) || (dot.status === "DAMAGED"
    ? dots.findLast((d) => d.timeline === dot.timeline && d.id < dot.id && d.status === "COMPLETED") : undefined);
  const live = new Set();
  for (let at = liveHead(dots, tree); at; at = before(at)) live.add(at.id);
  return { dots, lanes, rows, by, before, live, wide: LEFT * 2 + dots.length * STEP + 110,
    high: TOP + lanes.length * LANE + 30 };
}

// The newest drawn checkpoint of the live timeline, or of those that it descends from, up to where it began.
function liveHead(dots, tree) {
  const done = [...dots].reverse().filter((d) => d.status === "COMPLETED");
  let lane = tree.find((t) => t.is_live);
  let most = Infinity;
  while (lane) {
    const { timeline, parent, began_at: began } = lane;
    const found = done.find((d) => d.timeline === timeline && d.id <= most);
    if (found || !began) return found;
    most = Math.min(most, Number(began.slice(4)));
    lane = tree.find((t) => t.timeline === parent);
  }
  return undefined;
}

function Drawn({ lines, tree, onCheckpoint, onCompare }) {
  const plan = useMemo(() => laid(lines, tree), [lines, tree]);
  const [chosen, setChosen] = useState([]);
  const [focused, setFocused] = useState(null);
  const box = useRef(null);
  // The newest checkpoints are on the right, before the room of the axis' last text.
  useEffect(() => {
    const { current: view } = box;
    const newest = plan.dots[plan.dots.length - 1];
    if (view) view.scrollLeft = newest.x + Math.min(110, view.clientWidth / 4) - view.clientWidth;
  }, []);
  const current = plan.by.has(focused) ? focused : plan.dots[plan.dots.length - 1].id;
  const choose = (id) => setChosen(chosen.includes(id) ? chosen.filter((n) => n !== id) : [...chosen, id].slice(-2));
  const press = (event) => {
    const next = neighbour(plan, plan.by.get(current), event.key);
    if (event.key === "Enter") onCheckpoint(current);
    else if (event.key === " ") choose(current);
    else if (next) {
      setFocused(next.id);
      event.currentTarget.querySelector(`[data-dot="${next.id}"]`).focus();
    } else return;
    event.preventDefault();
  };
  const marked = chosen.map((id) => plan.by.get(id)).filter(Boolean).sort((a, b) => a.id - b.id);
  return h(C.Box, null,
    h(C.Flex, { borderWidth: "1px", borderColor: "border", borderRadius: "md", minW: 0 },
      h(Lanes, { plan }),
      h(C.Box, { ref: box, overflowX: "auto", flex: 1, minW: 0, pb: 1 },
        h("svg", { width: plan.wide, height: plan.high, role: "group", "aria-label": "Timeline graph",
          "data-graph": plan.dots.length, style: { display: "block", minWidth: plan.wide }, onKeyDown: press },
        h(Axis, { plan }), h(Ways, { plan }),
        plan.dots.map((dot) => h(Dot, { key: dot.id, dot, isLive: plan.live.has(dot.id),
          chosen: chosen.includes(dot.id), isStop: dot.id === current, onOpen: () => onCheckpoint(dot.id),
          onFocus: () => setFocused(dot.id), onChoose: () => { setFocused(dot.id); choose(dot.id); } }))))),
    h(Chosen, { marked, clear: () => setChosen([]), onCheckpoint, onCompare }),
    h(Legend));
}

// Left and right walk through all dots by time, up and down to the nearest one on another lane.
function neighbour({ dots }, from, key) {
  const at = dots.indexOf(from);
  const simple = { ArrowLeft: dots[at - 1], ArrowRight: dots[at + 1], Home: dots[0], End: dots[dots.length - 1] }[key];
  if (simple || !["ArrowUp", "ArrowDown"].includes(key)) return simple;
  const way = key === "ArrowUp" ? -1 : 1;
  const others = dots.filter((d) => (d.y - from.y) * way > 0);
  const far = (d) => Math.abs(d.y - from.y) * 1000 + Math.abs(d.x - from.x);
  return others.sort((a, b) => far(a) - far(b))[0];
}

// Timelines of backfills differ at their ends only.
const Lane = ({ t }) => [[24, { base: "none", md: "block" }], [12, { base: "block", md: "none" }]]
  .map(([most, display]) => h(C.Box, { key: most, display, overflow: "hidden", whiteSpace: "nowrap",
    fontWeight: t.is_live ? "bold" : "normal" }, h(Middle, { most }, t.timeline)));

// The names of the lanes stay in place while the graph scrolls.
const Lanes = ({ plan }) => h(C.Box, { w: { base: "6.5rem", md: "11rem" }, flexShrink: 0, borderRightWidth: "1px",
  borderColor: "border", fontSize: "xs", "aria-hidden": true, position: "relative" },
h(C.Box, { position: "absolute", right: 2, bottom: "9px", color: "fg.muted" }, zoneName()),
plan.lanes.map((t, n) => h(C.Flex, { key: t.timeline, direction: "column", justify: "center", px: 2, h: `${LANE}px`,
  mt: n === 0 ? `${TOP - LANE / 2}px` : 0 },
h(Lane, { t }),
h(Name, { most: "10rem", maxW: "100%", color: "fg.muted" }, t.fate))));

// Lines have the colours of their dots.
const toneOf = (isLive) => (isLive ? "green" : "blue");

// The lines: thick where the live head descends from, dashed where both ends are released.
function Ways({ plan }) {
  const { dots, lanes, rows, by, live } = plan;
  const done = dots.filter((d) => d.status === "COMPLETED" || d.status === "DAMAGED");
  const lineOf = (dot) => {
    const before = plan.before(dot);
    const isLive = live.has(dot.id);
    const look = { stroke: shade(toneOf(isLive)), strokeWidth: isLive ? 4 : 2,
      strokeDasharray: dot.discarded && (!before || before.discarded) ? "4 4" : undefined, fill: "none" };
    if (!before) return dot.parent === null ? null : h("path", { key: dot.id, ...look, d: `M0 ${dot.y}H${dot.x}` });
    return h("path", { key: dot.id, ...look, d: curve(before, dot) });
  };
  const restored = lanes.filter((t) => t.why === "restore" && t.began_at && by.has(Number(t.began_at.slice(4))));
  return h("g", { "aria-hidden": true },
    done.map(lineOf),
    lanes.filter((t) => t.checkpoints === 0 && t.began_at && by.has(Number(t.began_at.slice(4)))).map((t) => {
      const from = by.get(Number(t.began_at.slice(4)));
      const to = { x: from.x + STEP * 2, y: rows.get(t.timeline) };
      return h("path", { key: `empty ${t.timeline}`, d: curve(from, to), fill: "none", strokeWidth: t.is_live ? 4 : 2,
        stroke: shade(toneOf(t.is_live)) });
    }),
    restored.map((t) => h("text", { key: t.timeline, x: by.get(Number(t.began_at.slice(4))).x + STEP,
      y: rows.get(t.timeline) - 8, style: { fontSize: 14 }, fill: color("fg") }, "↩")));
}

// Along the lane of the later checkpoint, from a bend behind the earlier one.
function curve(from, to) {
  if (from.y === to.y) return `M${from.x} ${from.y}H${to.x}`;
  const bend = Math.min(from.x + STEP, to.x);
  return `M${from.x} ${from.y}C${from.x + STEP / 2} ${from.y} ${bend - STEP / 2} ${to.y} ${bend} ${to.y}H${to.x}`;
}

// Dots are evenly spaced, so the axis names the time of every seventh.
function Axis({ plan }) {
  const y = plan.high - 10;
  const ticks = plan.dots.filter((_, n) => n % TICK === 0);
  return h("g", { "aria-hidden": true }, ticks.map((dot) => h("g", { key: dot.id },
    h("line", { x1: dot.x, x2: dot.x, y1: 8, y2: y - 14, stroke: color("border"), strokeWidth: 1 }),
    h("text", { x: dot.x, y, style: { fontSize: 12 }, fill: color("fg.muted") }, when(dot.trigger_timestamp)))));
}

const isEmpty = (dot) => dot.status === "COMPLETED" && dot.records === 0 && dot.keys === 0;

function wordsOf(dot) {
  const word = dot.discarded ? "released" : isEmpty(dot) ? "completed, empty" : WORDS[dot.status] || dot.status;
  const pins = dot.savepoints.length > 0 ? `, savepoint ${dot.savepoints.join(", ")}` : "";
  return `${dot.name}, ${word}, on ${dot.timeline}, ${when(dot.trigger_timestamp)}${pins}`;
}

function Dot({ dot, isLive, chosen, isStop, onChoose, onFocus, onOpen }) {
  const { x, y } = dot;
  const words = wordsOf(dot);
  return h("g", { tabIndex: isStop ? 0 : -1, role: "button", "aria-pressed": chosen, "aria-label": words,
    "data-dot": dot.id, "data-kind": dot.discarded ? "released" : dot.status, onClick: onChoose, onFocus,
    onDoubleClick: onOpen,
    style: { cursor: "pointer" } },
  h("title", null, words),
  h("rect", { x: x - STEP / 2, y: y - LANE / 2, width: STEP, height: LANE, fill: "transparent" }),
  chosen && h("circle", { cx: x, cy: y, r: 10.5, fill: "none", stroke: color("fg"), strokeWidth: 2 }),
  h(Mark, { dot, tone: toneOf(isLive) }),
  dot.savepoints.length > 0 && h("path", { d: `M${x} ${y - 6}V${y - 20}L${x + 10} ${y - 16.5}L${x} ${y - 13}`,
    fill: shade("pink"), stroke: shade("pink"), strokeWidth: 1.5 }));
}

function Mark({ dot, tone }) {
  const { x, y } = dot;
  if (dot.status === "FAILED" || dot.status === "DAMAGED") {
    const d = `M${x - 5} ${y - 5}L${x + 5} ${y + 5}M${x + 5} ${y - 5}L${x - 5} ${y + 5}`;
    return h("path", { d, stroke: shade("red"), strokeWidth: 3, fill: "none" });
  }
  const open = dot.status === "IN_PROGRESS";
  const look = { cx: x, cy: y, r: 6, strokeWidth: 2 };
  if (open || dot.discarded) return h("circle", { ...look, fill: color("bg"), strokeDasharray: "3 2",
    stroke: open ? shade("blue") : color("fg.muted") });
  return h("circle", { ...look, stroke: shade(tone), fill: isEmpty(dot) ? color("bg")
    : shade(tone) });
}

const usable = (dot) => dot.status === "COMPLETED" && !dot.discarded;

function Chosen({ marked, clear, onCheckpoint, onCompare }) {
  const names = marked.map((d) => d.name);
  const button = (word, go, solid) => h(C.Button, { key: word, size: "xs", variant: solid ? "solid" : "outline",
    ...(solid ? { colorPalette: "brand" } : {}), onClick: go }, word);
  return h(C.Flex, { gap: 2, mt: 2, minH: 8, align: "center", wrap: "wrap", fontSize: "sm", role: "status",
    "data-chosen": names.join(" ") },
  marked.length === 0 && h(Muted, { as: "span" },
    "Choose a checkpoint to open it, or two to compare them. Keys: arrows, Space to choose, Enter to open."),
  marked.length === 1 && [h("b", { key: "name" }, names[0]),
    h(Muted, { as: "span", key: "words" }, wordsOf(marked[0]).slice(names[0].length + 2)),
    button(`Open ${names[0]}`, () => onCheckpoint(marked[0].id)),
    usable(marked[0]) && button("Compare with live", () => onCompare(names[0], "live"))],
  marked.length === 2 && [marked.every(usable)
    ? button(`Compare ${names[0]} with ${names[1]}`, () => onCompare(...names), true)
    : h(Muted, { as: "span", key: "words" }, "Only completed checkpoints that are not released can be compared."),
  ...marked.map((d) => button(`Open ${d.name}`, () => onCheckpoint(d.id)))],
  marked.length > 0 && button("Clear", clear));
}

const KEY = { timeline: "t", savepoints: [], x: 10, y: 10, records: 1, keys: 1, discarded: false, status: "COMPLETED" };
const KEYS = [["live line", "green", {}], ["fork or closed", "blue", {}], ["empty", "green", { records: 0, keys: 0 }],
  ["failed or damaged", "red", { status: "FAILED" }], ["in progress", "blue", { status: "IN_PROGRESS" }],
  ["released", "gray", { discarded: true }]];

const Legend = () => h(C.Flex, { gap: 4, wrap: "wrap", fontSize: "xs", color: "fg.muted", mt: 1, "aria-hidden": true },
  KEYS.map(([word, tone, part]) => h(C.Flex, { key: word, gap: 1, align: "center" },
    h("svg", { width: 20, height: 20 }, h(Mark, { dot: { ...KEY, ...part }, tone })), word)),
  h(C.Flex, { gap: 1, align: "center" }, h("svg", { width: 20, height: 20 },
    h("path", { d: "M6 18V3L16 6.5L6 10", fill: shade("pink"), stroke: shade("pink") })), "savepoint"),
  h("span", null, "↩ restore"));
