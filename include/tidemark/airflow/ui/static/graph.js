// The lineage of one checkpoint: nodes in columns, curves between them, and the facts of the chosen node.

import { hashOf } from "./place.js";
import { Answered, airflow, ask, bytes, C, color, dagRun, duration, Empty, Facts, h, inZone, Inside, Muted, ours, Time,
  useAnswer, useEffect, useRef, useState } from "./ui.js";

const NODE = { wide: 168, high: 42, gap: 12, column: 210 };
const TONES = {
  partition: "cyan", topic: "cyan", operator: "blue", state: "purple", sink: "orange", dead_letters: "red",
    gate: "yellow",
  manifest: "green", parent: "gray", child: "gray", savepoint: "pink",
};
const WORDS = { dead_letters: "dead letters", manifest: "checkpoint", parent: "checkpoint before",
  child: "checkpoint after" };
const HEADS = ["reads", "operators", "tables", "gate", "checkpoint", "then"];

// The lineage is asked for at the same time as the details, and again when the status changes.
export function useLineage(pipeline, checkpoint, status) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "lineage", checkpoint]), 0);
  const drawn = useRef(null);
  useEffect(() => {
    if (drawn.current && status && status !== drawn.current) answer.again();
    drawn.current = status || null;
  }, [status]);
  return answer;
}

export function Lineage({ answer, pipeline, checkpoint, dag, onCheckpoint }) {
  return h(Answered, { answer, what: "the lineage" },
    (graph) => h(C.Box, null, h(Drawn, { key: graph.id, graph, dag, onCheckpoint }),
      h(C.Box, { mt: 3, fontSize: "sm" }, h(Inside, { to: `/plugin/checkpoints${hashOf(
        { pipeline, view: "columns", checkpoint })}` }, "Lineage of the columns"))));
}

function Drawn({ graph, dag, onCheckpoint }) {
  const [chosen, setChosen] = useState("manifest");
  if (graph.nodes.length === 0) return h(Empty, { title: "Nothing to draw" },
    "The checkpoint read nothing and wrote nothing.");
  const places = placed(graph.nodes);
  const near = new Set([chosen, ...graph.edges.filter((e) => e.begin === chosen || e.end === chosen).flatMap((e) =>
    [e.begin, e.end])]);
  const node = graph.nodes.find((n) => n.id === chosen);
  const { wide, high } = places;
  const press = (event) => {
    const next = neighbour(graph.nodes, places.of, chosen, event.key);
    if (!next) return;
    event.preventDefault();
    setChosen(next);
    [...event.currentTarget.querySelectorAll("[data-node]")].find((e) => e.dataset.node === next).focus();
  };
  // The facts are next to the graph, at the height of their node; below it on a narrow screen.
  return h(C.Flex, { gap: 3, direction: { base: "column", xl: "row" }, align: { base: "stretch", xl: "flex-start" } },
    h(C.Box, { overflowX: "auto", tabIndex: 0, role: "region", "aria-label": "Lineage", borderWidth: "1px",
      borderColor: "border", borderRadius: "md", flex: { base: "none", xl: "1 1 0" }, minW: 0 },
      h("svg", { viewBox: `0 0 ${wide} ${high}`, style: { width: "100%", minWidth: wide * SMALLEST, maxWidth: wide,
        display: "block" }, role: "group", "aria-label": `Lineage of ${graph.name}. Arrow keys move between nodes.`,
      onKeyDown: press },
        h("defs", null, h("marker", { id: "tm-tip", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7,
          markerHeight: 7, orient: "auto" },
          h("path", { d: "M0 0 8 4 0 8Z", fill: color("fg.muted") }))),
        places.columns.map((c) => h("text", { key: c, x: places.left(c), y: 16, style: { fontSize: 12 },
          fill: color("fg.muted") }, HEADS[c])),
        graph.edges.map((e, n) => h(Edge, { key: n, begin: places.of[e.begin], end: places.of[e.end],
          bold: e.begin === chosen || e.end === chosen })),
        graph.nodes.map((n) => h(Node, { key: n.id, node: n, at: places.of[n.id], chosen: n.id === chosen,
          dim: chosen !== "manifest" && !near.has(n.id), onChoose: setChosen })))),
    node && h(C.Box, { flex: { xl: "0 0 21rem" }, minW: 0, mt: { base: 0, xl: `${offsetOf(places, node)}px` } },
      h(Chosen, { node, graph, dag, onCheckpoint })));
}

const SMALLEST = 0.7;
const [FACT, HEAD] = [30, 170];

// How far down the facts begin: near their node, but so that they end with the graph if they are not longer.
const offsetOf = ({ of, high }, { id, facts }) => Math.max(0, Math.min(of[id].y - 20,
  high - HEAD - FACT * Object.keys(facts).length) * SMALLEST);

// The node that an arrow key leads to: up and down within a column, left and right to the nearest of the next one.
function neighbour(nodes, of, id, key) {
  const [here, column] = [of[id], nodes.find((n) => n.id === id).column];
  const near = (found) => found.sort((a, b) => Math.abs(of[a.id].y - here.y) - Math.abs(of[b.id].y - here.y))[0];
  const columns = [...new Set(nodes.map((n) => n.column))].sort((a, b) => a - b);
  const next = { ArrowLeft: columns.filter((c) => c < column).pop(), ArrowRight: columns.find((c) => c > column) }[key];
  const found = { ArrowUp: near(nodes.filter((n) => n.column === column && of[n.id].y < here.y)),
    ArrowDown: near(nodes.filter((n) => n.column === column && of[n.id].y > here.y)), Home: nodes[0],
    End: nodes[nodes.length - 1] }[key] || (next !== undefined && near(nodes.filter((n) => n.column === next)));
  return found ? found.id : null;
}

function placed(nodes) {
  const columns = [...new Set(nodes.map((n) => n.column))].sort((a, b) => a - b);
  const most = Math.max(...columns.map((c) => nodes.filter((n) => n.column === c).length));
  const high = 36 + most * (NODE.high + NODE.gap);
  const left = (c) => 10 + columns.indexOf(c) * NODE.column;
  const of = {};
  for (const c of columns) {
    const here = nodes.filter((n) => n.column === c);
    const above = (high - 30 - here.length * (NODE.high + NODE.gap)) / 2;
    here.forEach((n, at) => { of[n.id] = { x: left(c), y: 26 + above + at * (NODE.high + NODE.gap) }; });
  }
  return { of, columns, left, high, wide: 20 + (columns.length - 1) * NODE.column + NODE.wide };
}

function Edge({ begin, end, bold }) {
  if (!begin || !end) return null;
  const [x1, y1, x2, y2] = [begin.x + NODE.wide, begin.y + NODE.high / 2, end.x - 2, end.y + NODE.high / 2];
  const [same, down, middle] = [begin.x === end.x, begin.y < end.y, begin.x + NODE.wide / 2];
  const line = same
    ? `M${middle} ${begin.y + (down ? NODE.high : 0)}L${middle} ${end.y + (down ? -2 : NODE.high + 2)}`
    : `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
  return h("path", {
    d: line, fill: "none", stroke: color(bold ? "fg" : "fg.muted"), strokeWidth: bold ? 1.8 : 1,
      opacity: bold ? 1 : 0.4, markerEnd: "url(#tm-tip)",
  });
}

function Node({ node, at, chosen, dim, onChoose }) {
  const tone = node.kind === "manifest" && node.status !== "COMPLETED"
    ? (node.status === "IN_PROGRESS" ? "blue" : "red") : TONES[node.kind] || "gray";
  const choose = () => onChoose(node.id);
  const press = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  };
  // Opaque even if it is faint, because curves pass behind it.
  const faint = dim ? { fill: `color-mix(in srgb, ${color(`${tone}.subtle`)} 35%, ${color("bg")})`,
    strokeOpacity: 0.6 } : {};
  const frame = { stroke: color(`${tone}.solid`), strokeWidth: chosen ? 3 : 1.3, fill: color(`${tone}.subtle`),
    ...faint };
  // It begins with the visible text.
  const words = `${[node.label, node.second].filter(Boolean).join(" ")}, ${WORDS[node.kind] || node.kind}`;
  return h("g", {
    transform: `translate(${at.x} ${at.y})`, tabIndex: chosen ? 0 : -1, role: "button", "aria-label": words,
    "aria-pressed": chosen, onClick: choose, onKeyDown: press, style: { cursor: "pointer" }, "data-node": node.id,
  },
  h("title", null, words),
  h("rect", { width: NODE.wide, height: NODE.high, rx: 7, ...frame }),
  h("foreignObject", { x: 8, y: 3, width: NODE.wide - 16, height: NODE.high - 6 },
    h("div", { style: { color: color("fg"), lineHeight: "18px" } },
      h("div", { dir: "auto", style: { ...CUT, fontSize: 13, fontWeight: 600 } }, h("bdi", null, node.label)),
      h("div", { dir: "auto", style: { ...CUT, fontSize: 12 } }, h("bdi", null, node.second)))));
}

const CUT = { overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "nowrap" };

const MOMENTS = ["began", "logical time", "planned"];

// A fact with its value as the rest of the page shows one: moments in the zone of Airflow, spans and sizes with units.
function told([name, value]) {
  if (MOMENTS.includes(name) && value) return [inZone(name), h(Time, { at: value })];
  if (typeof value !== "number") return [name, value];
  if (name === "bytes") return [name, bytes(value)];
  return name.endsWith(" ms") ? [name.slice(0, -3), duration(value)] : [name, value];
}

function Chosen({ node, graph, dag, onCheckpoint }) {
  // The error of a failed checkpoint is above the graph.
  const facts = Object.fromEntries(Object.entries(node.facts)
    .filter(([name]) => node.kind !== "manifest" || !["reason", "message", "next"].includes(name)).map(told));
  const run = node.run || graph.run;
  const to = node.checkpoint;
  return h(C.Box, { as: "section", "aria-live": "polite", borderWidth: "1px", borderColor: "border",
    borderRadius: "md", p: 3 },
    h(Muted, { fontSize: "xs" }, WORDS[node.kind] || node.kind),
    h(C.Heading, { as: "h3", size: "sm", overflowWrap: "anywhere", mb: 1 }, h("bdi", null, node.label)),
    node.second && h(C.Text, { fontSize: "sm", overflowWrap: "anywhere", mb: 2 }, h("bdi", null, node.second)),
    h(Facts, { facts }),
    h(C.Flex, { gap: 3, mt: 3, wrap: "wrap", fontSize: "sm" },
      to && onCheckpoint && h(C.Button, { size: "xs", variant: "outline", onClick: () => onCheckpoint(to) },
        `Lineage of chk-${to}`),
      node.asset && h(AssetLink, { name: node.asset }),
      node.task && dag && h(RunLink, { dag, run, task: node.task, label: `Log of task ${node.task}` }),
      to && dag && node.run && h(RunLink, { dag, run: node.run, label: "Its DAG run" })));
}

// A link to a run of this DAG or of another one, such as a backfill's; a run of the command line has no link.
export function RunLink({ dag, run, task, label }) {
  const { data, error } = useAnswer(ours(["runs"], { run_id: run, dag_id: dag }), 0);
  if (!data && !error) return null;
  const owner = data && data.dag_id;
  const written = /^(patch|transform) [0-9a-f]{64}$/.exec(run);
  if (!owner) return h(Muted, { overflowWrap: "anywhere" }, run === "cli" ? "Created from the command line"
    : written ? `Created by a ${written[1]}`
      : ["Created by ", h("bdi", { key: "run" }, run), ", a run that is not in Airflow"]);
  return h(Inside, { to: dagRun(owner, run) + (task && owner === dag ? `/tasks/${task}` : "") },
    owner === dag ? label : `${label}, of ${owner}`);
}

export function AssetLink({ name }) {
  const [id, setId] = useState(null);
  useEffect(() => {
    let gone = false;
    const found = (data) => {
      const asset = (data.assets || []).find((a) => a.name === name);
      if (!gone && asset) setId(asset.id);
    };
    setId(null);
    ask(airflow(["assets"], { name_pattern: name, limit: 50 })).then(found, () => undefined);
    return () => { gone = true; };
  }, [name]);
  return id === null ? null : h(Inside, { to: `/assets/${id}` }, "Asset");
}

