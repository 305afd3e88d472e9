// Charts as handwritten SVG over a time axis, as wide as their box, so that texts keep their size.

import { timeTicks } from "./clock.js";
import { C, color, counted, h, Muted, Panel, React, useCallback, useEffect, useState, when } from "./ui.js";

const HIGH = 190;
const TOP = 26;
const BOTTOM = 22;
const TEXT = { style: { fontSize: 12 }, fill: color("fg.muted") };
const LETTER = 6.8;
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 5", "5 2 5 6", "1 5", "12 3 2 3 2 3"];
const TONES = ["blue", "orange", "green", "purple", "red", "teal", "pink", "gray"];

// Darker lines on white, lighter ones in the dark: at least 3:1 against the background.
export const shade = (tone) => `light-dark(${color(`${tone}.600`)}, ${color(`${tone}.400`)})`;

// The marks: the word, a colour, and the outline around (0, 0).
export const MARKS = {
  compaction: { word: "Compaction", tone: "blue", d: "M-5 -4H5L0 5Z", solid: true },
  failed: { word: "Failed", tone: "red", d: "M-4 -4L4 4M4 -4L-4 4" },
  savepoint: { word: "Savepoint", tone: "pink", d: "M-3 6V-5H5L3 -2L5 1H-3", solid: true },
  restore: { word: "Restore", tone: "purple", d: "M-1 -5L-5 -2L-1 1M-5 -2H2A3.500 3.500 0 0 1 2 5H-1" },
  fork: { word: "Fork", tone: "gray", d: "M0 6V1L-4 -5M0 1L4 -5" },
};

export const Mark = ({ kind, x, y }) => h("path", { d: MARKS[kind].d, transform: `translate(${x.toFixed(1)} ${y})`,
  stroke: shade(MARKS[kind].tone), strokeWidth: 1.8, strokeLinejoin: "round", strokeLinecap: "round",
  fill: MARKS[kind].solid ? shade(MARKS[kind].tone) : "none", "data-mark": kind });

const marksOf = (p) => [...(p.compacted.length ? ["compaction"] : []), ...(p.savepoints.length ? ["savepoint"] : [])];

// What the arrow keys walk over: checkpoints and events, by time.
export function stopsOf(points, marks) {
  const found = [...points.map((point) => ({ at: point.trigger_timestamp, point, kinds: marksOf(point) })),
    ...marks.map((mark) => ({ at: mark.at, mark, kinds: mark.kind in MARKS ? [mark.kind] : [] }))];
  return found.sort((a, b) => a.at - b.at);
}

// The places of the marks: one that would cover the mark before it moves a little to the right.
function spread(stops, place) {
  let last = -Infinity;
  return stops.flatMap((stop) => stop.kinds.map((kind) => {
    const x = place.x(stop.at);
    last = Math.min(Math.max(x, last + 12), x + 24);
    return { kind, x: last };
  }));
}

// The width of a box, measured.
function useWidth() {
  const [box, setBox] = useState(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!box) return undefined;
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(box);
    return () => watch.disconnect();
  }, [box]);
  // Measured at once: a chart is drawn in the same frame as the panel around it.
  const begin = useCallback((element) => {
    setBox(element);
    if (element) setWidth(Math.floor(element.getBoundingClientRect().width));
  }, []);
  return [begin, width];
}

// series: [{name, of: (point) => number}]; format: number to text; units: what its ticks are multiples of.
export function Chart({ title, points, stops, series, format, units, onChoose }) {
  const [box, width] = useWidth();
  const [at, setAt] = useState(null);
  if (points.length === 0) return h(Panel, { title }, h(Muted, null, "No checkpoint is completed yet."));
  const place = layout({ points, stops, series, format, units, width });
  const chosen = at === null ? null : Math.min(at, stops.length - 1);
  const keys = keyboard({ stops, chosen, setAt, onChoose });
  const near = (event) => {
    const x = event.clientX - event.currentTarget.getBoundingClientRect().left;
    const gaps = stops.map((stop) => Math.abs(place.x(stop.at) - x));
    setAt(gaps.indexOf(Math.min(...gaps)));
  };
  const stop = stops[chosen ?? stops.length - 1];
  return h(Panel, { title }, h(C.Box, { ref: box, position: "relative", minH: `${HIGH}px` },
    width > 0 && h("svg", {
      width, height: HIGH, role: "slider", tabIndex: 0, "data-chart": title,
      style: { cursor: "pointer", display: "block" },
      "aria-label": `${title}, ${counted(points.length, "checkpoint")}. Arrow keys move, Enter opens.`,
      "aria-valuemin": 1, "aria-valuemax": stops.length, "aria-valuenow": (chosen ?? stops.length - 1) + 1,
      "aria-valuetext": sentence(stop, series, format),
      onMouseMove: near, onMouseLeave: () => setAt(null), onKeyDown: keys,
      onFocus: () => setAt((was) => was ?? stops.length - 1), onBlur: () => setAt(null),
      onClick: () => chosen !== null && onChoose(idOf(stops[chosen])),
    },
    h(Axes, { place, format }),
    series.map((s, n) => h(Curve, { key: s.name, n, points, place, of: s.of, alone: series.length === 1 })),
    series.length > 1 && h(Labels, { place }),
    spread(stops, place).map(({ kind, x }, n) => h(Mark, { key: n, kind, x, y: 10 })),
    chosen !== null && h("line", { x1: place.x(stop.at), x2: place.x(stop.at), y1: TOP - 6, y2: HIGH - BOTTOM,
      stroke: color("fg.muted"), strokeDasharray: "3 3" })),
    chosen !== null && h(Tip, { stop, series, format, place })));
}

const idOf = (stop) => (stop.point ? stop.point.id : stop.mark.checkpoint);

const EVENTS = { failed: (m) => `chk-${m.checkpoint} failed: ${m.label}`,
  restore: (m) => `Restore of chk-${m.checkpoint}: timeline ${m.label} began`,
  fork: (m) => `Fork ${m.label} began at chk-${m.checkpoint}` };
const wordsOf = (mark) => (EVENTS[mark.kind] || ((m) => `${m.kind} at chk-${m.checkpoint}`))(mark);

function extras(point) {
  return [
    point.compacted.length ? `adopted compactions of ${point.compacted.join(", ")}` : "",
    point.savepoints.length ? `savepoints: ${point.savepoints.join(", ")}` : "",
  ].filter(Boolean);
}

function sentence(stop, series, format) {
  if (stop.mark) return `${wordsOf(stop.mark)}, ${when(stop.at)}`;
  const values = series.map((s) => `${s.name} ${format(s.of(stop.point) || 0)}`);
  return [`chk-${stop.point.id}: ${values.join(", ")}`, ...extras(stop.point), when(stop.at)].join(", ");
}

function keyboard({ stops, chosen, setAt, onChoose }) {
  return (pressed) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[pressed.key];
    const end = { Home: 0, End: stops.length - 1 }[pressed.key];
    if (step || end !== undefined) {
      pressed.preventDefault();
      setAt(end ?? Math.max(0, Math.min(stops.length - 1, (chosen ?? stops.length) + step)));
    } else if (pressed.key === "Enter" && chosen !== null) onChoose(idOf(stops[chosen]));
    else if (pressed.key === "Escape") setAt(null);
  };
}

// Ticks 0, n and 2 n of a round n, so that the greatest value has a place.
export function ticksOf(most, units) {
  const unit = units.filter((one) => one <= most).pop() || units[0];
  const raw = Math.max(most / unit / 2, units[0] === 1 && unit === 1 ? 1 : 0.001);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((n) => n * power >= raw * 0.9999) * power * unit;
  return [0, step, 2 * step];
}

const short = (name) => (name.length > 18 ? `…${name.slice(-17)}` : name);

function layout({ points, stops, series, format, units, width }) {
  const most = Math.max(0, ...points.flatMap((p) => series.map((s) => s.of(p) || 0)));
  const ticks = ticksOf(most, units);
  const left = 10 + LETTER * Math.max(...ticks.map((tick) => format(tick).length));
  const names = series.length > 1 ? series.map((s) => short(s.name)) : [];
  const right = names.length ? Math.min(width * 0.35, 14 + LETTER * Math.max(...names.map((n) => n.length))) : 12;
  const [first, last] = [stops[0].at, stops[stops.length - 1].at];
  const x = (at) => left + (last === first ? 0.5 : (at - first) / (last - first)) * (width - left - right);
  const y = (v) => TOP + (1 - (v || 0) / ticks[2]) * (HIGH - BOTTOM - TOP);
  const times = last === first ? [{ at: first, label: when(first).slice(0, 16) }]
    : timeTicks(first, last, Math.max(1, Math.floor((width - left - right) / 85)));
  return { width, left, right, ticks, times, x, y, labels: labelled(points, series, names, y) };
}

// The name at the end of each line. Names that would overlap move down, or up from the axis.
function labelled(points, series, names, y) {
  const end = points[points.length - 1];
  const placed = names.map((name, n) => ({ name, n, y: y(series[n].of(end)) })).sort((a, b) => a.y - b.y);
  placed.forEach((label, n) => { if (n) label.y = Math.max(label.y, placed[n - 1].y + 14); });
  for (let n = placed.length - 1; n >= 0; n -= 1) {
    placed[n].y = Math.min(placed[n].y, n === placed.length - 1 ? HIGH - BOTTOM : placed[n + 1].y - 14);
  }
  return placed;
}

function Axes({ place, format }) {
  const { left, right, width, ticks, times, x, y } = place;
  return h("g", null,
    ticks.map((tick) => h("g", { key: tick },
      h("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), stroke: color("border.emphasized") }),
      h("text", { x: left - 6, y: y(tick) + 4, ...TEXT, textAnchor: "end" }, format(tick)))),
    times.map(({ at, label }) => h("g", { key: at },
      h("line", { x1: x(at), x2: x(at), y1: HIGH - BOTTOM, y2: HIGH - BOTTOM + 4, stroke: color("fg.muted") }),
      h("text", { x: Math.max(LETTER * label.length * 0.5, Math.min(width - LETTER * label.length * 0.5, x(at))),
        y: HIGH - 5, ...TEXT, textAnchor: "middle" }, label))));
}

const Labels = ({ place }) => h("g", null, place.labels.map(({ name, n, y }) => h("text", { key: n,
  x: place.width - place.right + 8, y: y + 4, style: { fontSize: 12 }, fill: color(`${TONES[n]}.fg`) }, name)));

// The style of the nth line. Its dashes distinguish it for readers who do not see colours.
const drawn = (n) => ({ fill: "none", stroke: shade(TONES[n % TONES.length]), strokeWidth: 2,
  strokeLinejoin: "round", strokeDasharray: DASHES[n % DASHES.length] });

// A line leads from each checkpoint to those made from it, so timelines branch off where they began.
function Curve({ n, points, place, of, alone }) {
  const { x, y } = place;
  const spot = (p) => `${x(p.trigger_timestamp).toFixed(1)} ${y(of(p)).toFixed(1)}`;
  const known = new Map(points.map((p) => [p.id, p]));
  let last = null;
  const d = points.map((p) => {
    const parent = known.get(p.parent);
    const from = parent === undefined ? "" : parent === last ? "" : `M${spot(parent)}`;
    last = p;
    return `${from}${parent === undefined ? "M" : "L"}${spot(p)}`;
  }).join("");
  const apart = (place.width - place.left - place.right) / points.length >= 9;
  return h(React.Fragment, null,
    points.length > 1 && h("path", { d, ...drawn(n) }),
    (apart || points.length === 1) && points.map((p) => h("circle", { key: p.id, cx: x(p.trigger_timestamp),
      cy: y(of(p)), r: alone ? 3 : 2.5, fill: shade(TONES[n % TONES.length]) })));
}

function Tip({ stop, series, format, place }) {
  const at = place.x(stop.at);
  const side = at > place.width / 2 ? { right: `${place.width - at + 10}px` } : { left: `${at + 10}px` };
  return h(C.Box, { position: "absolute", top: "22px", ...side, zIndex: 1, bg: "bg.panel", borderWidth: "1px",
    borderColor: "border.emphasized", borderRadius: "md", shadow: "md", px: 2, py: 1, fontSize: "xs",
    pointerEvents: "none", maxW: `${Math.max(140, place.width / 2)}px`, "aria-hidden": true, "data-tip": true },
  h(C.Text, { fontWeight: "semibold", overflowWrap: "anywhere" }, stop.point ? `chk-${stop.point.id}`
    : h("bdi", null, wordsOf(stop.mark))),
  h(C.Text, { color: "fg.muted" }, when(stop.at)),
  stop.point && series.map((s, n) => h(C.Flex, { key: s.name, gap: 1, align: "center" },
    series.length > 1 && h("svg", { width: 18, height: 8, style: { flexShrink: 0 } },
      h("path", { d: "M0 4H18", ...drawn(n) })),
    h(C.Text, { overflowWrap: "anywhere" }, h("bdi", null, s.name), ` ${format(s.of(stop.point) || 0)}`))),
  stop.point && extras(stop.point).map((text) => h(C.Text, { key: text, overflowWrap: "anywhere" },
    h("bdi", null, text))));
}

// The signs that occur, with their words.
export function Signs({ stops }) {
  const kinds = Object.keys(MARKS).filter((kind) => stops.some((stop) => stop.kinds.includes(kind)));
  return h(C.Flex, { gap: 4, wrap: "wrap", fontSize: "sm", color: "fg.muted" }, kinds.map((kind) => h(C.Flex,
    { key: kind, gap: 1, align: "center" },
    h("svg", { width: 16, height: 14, "aria-hidden": true }, h(Mark, { kind, x: 8, y: 7 })), MARKS[kind].word)));
}

// A line per partition with a number at any point: the eight with the largest numbers.
export function partitions(points, none, of) {
  const most = new Map();
  for (const p of points) for (const [tp, n] of Object.entries(of(p))) most.set(tp, Math.max(n, most.get(tp) || 0));
  const names = [...most].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([tp]) => tp).sort();
  if (names.length === 0) return [{ name: none, of: () => 0 }];
  return names.map((tp) => ({ name: tp, of: (p) => of(p)[tp] || 0 }));
}

export const BYTES = [1, 1024, 1024 ** 2, 1024 ** 3, 1024 ** 4];
export const COUNTS = [1];
export const SPANS = [1, 1000, 60000, 3600000, 86400000];
export const whole = (n) => (n >= 1e6 ? `${+(n / 1e6).toFixed(1)} M` : n >= 1e4 ? `${+(n / 1e3).toFixed(1)} k`
  : Math.round(n).toLocaleString("en-US"));
