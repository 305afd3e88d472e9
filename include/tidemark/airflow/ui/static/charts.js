// Charts as handwritten SVG: lines over checkpoints, in the host's colours and with different dashes.

import { C, color, count, h, Muted, Panel, useState } from "./ui.js";

const WIDE = 640;
const HIGH = 150;
const LEFT = 68;
const BOTTOM = 22;
const SMALL = { style: { fontSize: 13 }, fill: color("fg.muted") };
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 5", "5 2 5 6", "1 5", "12 3 2 3 2 3"];
const TONES = ["blue.solid", "orange.solid", "green.solid", "purple.solid", "red.solid", "teal.solid", "pink.solid",
  "gray.solid"];

// series: [{name, of: (point) => number, tone}]; format: number to text.
export function Chart({ title, points, series, format, onChoose }) {
  const [at, setAt] = useState(null);
  if (points.length === 0) return h(Panel, { title }, h(Muted, null, "Nothing is completed yet."));
  const most = Math.max(4, ...points.flatMap((p) => series.map((s) => s.of(p) || 0)));
  const x = (n) => LEFT + (points.length === 1 ? 0.5 : n / (points.length - 1)) * (WIDE - LEFT - 8);
  const y = (v) => 8 + (1 - (v || 0) / most) * (HIGH - BOTTOM - 8);
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width) * WIDE;
    const near = Math.round(((share - LEFT) / (WIDE - LEFT - 8)) * (points.length - 1));
    setAt(Math.max(0, Math.min(points.length - 1, near)));
  };
  const key = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const end = { Home: 0, End: points.length - 1 }[event.key];
    if (step || end !== undefined) {
      event.preventDefault();
      setAt(end ?? Math.max(0, Math.min(points.length - 1, (at ?? points.length) + step)));
    } else if (event.key === "Enter" && at !== null) onChoose(points[at].id);
  };
  const data = at === null ? points[points.length - 1] : points[at];
  const words = series.map((s) => `${s.name} ${format(s.of(data) || 0)}`).join(", ");
  return h(Panel, { title, aside: h(Legend, { series, data, format }) },
    h("svg", {
      viewBox: `0 0 ${WIDE} ${HIGH}`, width: "100%", role: "slider", tabIndex: 0, "data-chart": title,
        style: { cursor: "pointer", display: "block" },
      "aria-label": `${title}, ${points.length} checkpoints. Arrow keys move, Enter opens.`, "aria-valuemin": 1,
      "aria-valuemax": points.length, "aria-valuenow": (at ?? points.length - 1) + 1,
      "aria-valuetext": `chk-${data.id}: ${words}`,
      onMouseMove: move, onMouseLeave: () => setAt(null), onKeyDown: key, onBlur: () => setAt(null),
      onClick: () => at !== null && onChoose(points[at].id),
    },
    h(Axis, { most, format, y }),
    series.map((s, n) => h(Curve, { key: s.name, n, points, x, y, of: s.of })),
    at !== null && h("line", { x1: x(at), x2: x(at), y1: 4, y2: HIGH - BOTTOM, stroke: color("fg.muted"),
      strokeDasharray: "3 3" }),
    [0, points.length - 1].filter((n, i, all) => all.indexOf(n) === i).map((n) => h("text", {
      key: n, x: x(n), y: HIGH - 5, ...SMALL, textAnchor: n === 0 && points.length > 1 ? "start" : "end",
    }, `chk-${points[n].id}`))));
}

function Legend({ series, data, format }) {
  return h(C.Flex, { gap: 3, fontSize: "xs", color: "fg.muted", wrap: "wrap", justify: "flex-end" },
    h("span", null, `chk-${data.id}`),
    series.slice(0, 8).map((s, n) => h(C.Flex, { key: s.name, gap: 1, align: "center", title: s.name },
      h("svg", { "aria-hidden": true, width: 22, height: 8 }, h("path", { d: "M0 4L22 4", ...drawn(n) })),
      h("bdi", null, `${s.name.length > 24 ? `${s.name.slice(0, 23)}…` : s.name} ${format(s.of(data) || 0)}`))));
}

function Axis({ most, format, y }) {
  return h("g", null, [0, 0.5, 1].map((share) => h("g", { key: share },
    h("line", { x1: LEFT, x2: WIDE - 8, y1: y(most * share), y2: y(most * share), stroke: color("border"),
      strokeWidth: 1 }),
    h("text", { x: LEFT - 6, y: y(most * share) + 4, ...SMALL, textAnchor: "end" }, format(most * share)))));
}

// The style of the nth line. Its dashes distinguish it for readers who do not see colours.
const drawn = (n) => ({ fill: "none", stroke: color(TONES[n % TONES.length]), strokeWidth: 1.8,
  strokeLinejoin: "round", strokeDasharray: DASHES[n % DASHES.length] });

function Curve({ n, points, x, y, of }) {
  if (points.length === 1) {
    return h("circle", { cx: x(0), cy: y(of(points[0])), r: 3, fill: color(TONES[n % TONES.length]) });
  }
  const line = points.map((p, at) => `${at === 0 ? "M" : "L"}${x(at).toFixed(1)} ${y(of(p)).toFixed(1)}`).join("");
  return h("path", { d: line, ...drawn(n) });
}

// A line per partition with a number at any point: the eight with the largest numbers.
export function partitions(points, none, of) {
  const most = new Map();
  for (const p of points) for (const [tp, n] of Object.entries(of(p))) most.set(tp, Math.max(n, most.get(tp) || 0));
  const names = [...most].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([tp]) => tp).sort();
  if (names.length === 0) return [{ name: none, of: () => 0 }];
  return names.map((tp) => ({ name: tp, of: (p) => of(p)[tp] || 0 }));
}

export const whole = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : n >= 1e4 ? `${(n / 1e3).toFixed(0)} k`
  : count(n));
