// The lineage of one checkpoint: nodes in columns, curves between them, and the facts of the chosen node.

import { Answered, airflow, ask, bytes, C, color, dagRun, Empty, Facts, h, Inside, Muted, ours, useAnswer,
  useEffect, useState } from "./ui.js";

const NODE = { wide: 168, high: 42, gap: 12, column: 210 };
const TONES = {
  partition: "cyan", topic: "cyan", operator: "blue", state: "purple", sink: "orange", dead_letters: "red",
    gate: "yellow",
  manifest: "green", parent: "gray", child: "gray", savepoint: "pink",
};
const WORDS = { dead_letters: "dead letters", manifest: "checkpoint", parent: "checkpoint before",
  child: "checkpoint after" };
const HEADS = ["reads", "operators", "tables", "gate", "checkpoint", "then"];

export function Lineage({ pipeline, checkpoint, dag, onCheckpoint }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "lineage", checkpoint]), 0);
  return h(Answered, { answer, what: "the lineage" },
    (graph) => h(Drawn, { key: graph.id, graph, dag, onCheckpoint }));
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
  return h(C.Flex, { gap: 3, direction: "column" },
    h(C.Box, { overflowX: "auto", tabIndex: 0, role: "region", "aria-label": "Lineage", borderWidth: "1px",
      borderColor: "border", borderRadius: "md" },
      h("svg", { viewBox: `0 0 ${wide} ${high}`, style: { width: "100%", minWidth: wide * 0.7, maxWidth: wide,
        display: "block" }, role: "group", "aria-label": `Lineage of ${graph.name}` },
        h("defs", null, h("marker", { id: "tm-tip", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7,
          markerHeight: 7, orient: "auto" },
          h("path", { d: "M0 0 8 4 0 8Z", fill: color("fg.muted") }))),
        places.columns.map((c) => h("text", { key: c, x: places.left(c), y: 16, style: { fontSize: 12 },
          fill: color("fg.muted") }, HEADS[c])),
        graph.edges.map((e, n) => h(Edge, { key: n, begin: places.of[e.begin], end: places.of[e.end],
          bold: e.begin === chosen || e.end === chosen })),
        graph.nodes.map((n) => h(Node, { key: n.id, node: n, at: places.of[n.id], chosen: n.id === chosen,
          dim: chosen !== "manifest" && !near.has(n.id), onChoose: setChosen })))),
    node && h(Chosen, { node, graph, dag, onCheckpoint }));
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
  const tone = node.kind === "manifest" && node.status !== "COMPLETED" ? (node.status === "FAILED" ? "red" : "blue")
    : TONES[node.kind] || "gray";
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
  const words = `${WORDS[node.kind] || node.kind} ${node.label}${node.second ? `, ${node.second}` : ""}`;
  return h("g", {
    transform: `translate(${at.x} ${at.y})`, tabIndex: 0, role: "button", "aria-label": words, "aria-pressed": chosen,
    onClick: choose, onKeyDown: press, style: { cursor: "pointer" }, "data-node": node.id,
  },
  h("title", null, words),
  h("rect", { width: NODE.wide, height: NODE.high, rx: 7, ...frame }),
  h("foreignObject", { x: 8, y: 3, width: NODE.wide - 16, height: NODE.high - 6 },
    h("div", { style: { color: color("fg"), lineHeight: "18px" } },
      h("div", { dir: "auto", style: { ...CUT, fontSize: 13, fontWeight: 600 } }, h("bdi", null, node.label)),
      h("div", { dir: "auto", style: { ...CUT, fontSize: 12 } }, h("bdi", null, node.second)))));
}

const CUT = { overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "nowrap" };

function Chosen({ node, graph, dag, onCheckpoint }) {
  const facts = { ...node.facts };
  if (typeof facts.bytes === "number") facts.bytes = bytes(facts.bytes);
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
  const [owner, setOwner] = useState(null);
  useEffect(() => {
    let gone = false;
    const found = (id) => !gone && setOwner(id);
    ask(airflow(["dags", dag, "dagRuns", run]))
      .then(() => found(dag), () => elsewhere(run).then(found, () => found("")));
    return () => { gone = true; };
  }, [dag, run]);
  if (owner === null) return null;
  if (!owner) return h(Muted, { overflowWrap: "anywhere" }, "Made by ", h("bdi", null, run),
    ", which Airflow does not know");
  return h(Inside, { to: dagRun(owner, run) + (task && owner === dag ? `/tasks/${task}` : "") },
    owner === dag ? label : `${label}, of ${owner}`);
}

// The DAG of a run; none if several DAGs have a run of this name.
async function elsewhere(run) {
  const data = await ask(airflow(["dags", "~", "dagRuns"], { run_id_pattern: run, limit: 10 }));
  const same = data.dag_runs.filter((one) => one.dag_run_id === run);
  return same.length === 1 ? same[0].dag_id : "";
}

function AssetLink({ name }) {
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

