// The lineage of columns: choose one, and see the columns that make or decide it, and those that depend on it.

import { Fingerprint } from "./details.js";
import { AssetLink } from "./graph.js";
import { Answered, C, count, counted, Empty, h, Muted, Name, ours, Panel, React, useAnswer, useEffect, useRef,
  useState } from "./ui.js";

const TONES = { source: "cyan", state: "purple", output: "blue", sink: "orange", publication: "green" };
const WORDS = { IDENTITY: "as it is", TRANSFORMATION: "computed", AGGREGATION: "aggregated", JOIN: "joined by",
  GROUP_BY: "key", FILTER: "filter", SORT: "order", WINDOW: "window", CONDITIONAL: "condition" };
const FOLDED = 4;
const FUNCTION = "a function";

export function Columns({ pipeline, column, checkpoint, go, onCheckpoint }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "lineage", "columns"], { checkpoint, column }), 0);
  const choose = (id) => go({ column: id });
  return h(C.Flex, { direction: "column", gap: 3 },
    column && answer.error && h(C.Box, null, h(All, { choose })),
    h(Answered, { answer, what: "the columns" }, (data) => {
      if (!data.recorded) {
        return h(Empty, { title: `${data.as_of} recorded no columns` },
          "An earlier release made it. The next checkpoint records them.");
      }
      return h(React.Fragment, null,
        h(Muted, null, "As recorded by ",
          h(C.Button, { size: "xs", variant: "ghost", px: 1, color: "fg.info", onClick: () =>
            onCheckpoint(data.checkpoint) }, data.as_of), " with the code ", h(Fingerprint, { of: data.fingerprint })),
        data.column
          ? h(Chosen, { key: data.column.id, pipeline, data, choose, onCheckpoint })
          : h(Datasets, { datasets: data.datasets, choose }));
    }));
}

const All = ({ choose }) => h(C.Button, { size: "xs", variant: "ghost", px: 1, color: "fg.info",
  onClick: () => choose("") }, "All columns");

const Kind = ({ kind }) => h(C.Badge, { colorPalette: TONES[kind], variant: "subtle", mr: 2 }, kind);

function Datasets({ datasets, choose }) {
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const matching = datasets.map((d) => ({ ...d, columns: d.columns.filter((c) =>
    `${d.name}.${c.name}`.toLowerCase().includes(wanted)) })).filter((d) => d.columns.length > 0);
  const found = matching.reduce((sum, d) => sum + d.columns.length, 0);
  return h(React.Fragment, null,
    h(C.Flex, { role: "search", gap: 3, align: "center", wrap: "wrap" },
      h(C.Input, { size: "sm", w: "16rem", maxW: "100%", "aria-label": "Find a column", placeholder: "Find a column",
        maxLength: 250, value: text, onChange: (e) => setText(e.target.value) }),
      h("span", { role: "status", style: { fontSize: 14 } }, counted(found, "column"))),
    found === 0
      ? h(Empty, { title: "No column matches" }, "Type a part of its name, or of its dataset's.")
      : h(C.Box, { display: "grid", gap: 3, alignItems: "start",
        gridTemplateColumns: "repeat(auto-fill, minmax(min(20rem, 100%), 1fr))" },
        matching.map((d) => h(Panel, { key: `${d.kind}:${d.name}`, title: h(Title, { dataset: d }) },
          h(C.Box, { as: "ul", listStyleType: "none" }, d.columns.map((c) => h(C.Flex, { as: "li", key: c.id,
            align: "center", gap: 2, minW: 0, justify: "space-between" },
            h(ColumnButton, { column: c, choose }),
            c.made && h(Name, { most: "12rem", fontSize: "xs", color: "fg.muted" }, c.made))))))));
}

const Title = ({ dataset }) => h(React.Fragment, null, h(Kind, dataset), h(Name, { most: "14rem" }, dataset.name),
  where(dataset) && h(Name, { most: "17rem", display: "block", fontSize: "xs", fontWeight: "normal",
    color: "fg.muted" }, where(dataset)));

const where = (d) => (d.topics.length ? `topic ${d.topics.join(", ")}` : d.place);

const ColumnButton = ({ column, choose }) => h(C.Button, { size: "xs", variant: "ghost", px: 1, minW: 0,
  color: "fg.info", "data-column": column.id, "aria-label": column.id, onClick: () => choose(column.id) },
  h(Name, { most: "15rem" }, column.name));

// It takes the focus, so keyboard and screen reader continue here.
function Chosen({ pipeline, data, choose, onCheckpoint }) {
  const here = useRef(null);
  const chosen = data.column;
  const dataset = data.datasets.find((d) => d.kind === chosen.kind && d.name === chosen.dataset);
  useEffect(() => here.current.focus({ preventScroll: true }), []);
  return h(C.Flex, { direction: "column", gap: 3, "data-chosen": chosen.id },
    h(C.Flex, { as: "nav", "aria-label": "Breadcrumb", gap: 2, align: "center", wrap: "wrap", fontSize: "sm" },
      h(All, { choose }), h("span", { "aria-hidden": true }, "›"),
      h(C.Heading, { as: "h2", size: "md", ref: here, tabIndex: -1, outline: "none", "aria-current": "page",
        overflowWrap: "anywhere", minW: 0 }, h("bdi", null, `${chosen.dataset}.${chosen.name}`)),
      h(Kind, chosen)),
    h(C.Flex, { gap: 3, align: "center", wrap: "wrap", fontSize: "sm", minW: 0 },
      chosen.made && h(C.Text, { overflowWrap: "anywhere" }, "Computed by ", chosen.made === FUNCTION ? FUNCTION
        : h("bdi", null, h("code", null, chosen.made))),
      dataset.uid && h("span", null, "written by operator ", h(C.Button, { size: "xs", variant: "ghost", px: 1,
        color: "fg.info", onClick: () => onCheckpoint(data.checkpoint) }, h(Name, null, dataset.uid))),
      where(dataset) && h(Name, { color: "fg.muted", most: "24rem" }, where(dataset)),
      assets(pipeline, dataset).map((name) => h(AssetLink, { key: name, name }))),
    h(C.Box, { display: "grid", gap: 3, alignItems: "start",
      gridTemplateColumns: { base: "minmax(0, 1fr)", lg: "repeat(2, minmax(0, 1fr))" } },
      h(Side, { title: "Upstream", linked: chosen.upstream, choose, makes: "Makes it", decides: "Decides it",
        many: (n) => `possibly any of ${n} fields: a function gets them`,
        none: chosen.kind === "source" ? "It is a field of a record." : "No field makes or decides it." }),
      h(Side, { title: "Downstream", linked: chosen.downstream, choose, makes: "Made from it",
        decides: "Decided by it", none: "No column depends on it.",
        many: (n) => `possibly any of ${n} columns: a function makes them` })));
}

function assets(pipeline, dataset) {
  if (dataset.kind === "state") return [`${pipeline}/state/${dataset.uid}`];
  if (dataset.kind === "sink") return [`${pipeline}/sinks/${dataset.name}`];
  return dataset.topics.slice(0, 1).map((topic) => `topic ${topic}`);
}

function Side({ title, linked, choose, makes, decides, none, many }) {
  const direct = (one) => one.transformations.some((t) => t.type === "DIRECT");
  const parts = [[makes, linked.filter(direct)], [decides, linked.filter((one) => !direct(one))]];
  return h(Panel, { title, "data-side": title },
    linked.length === 0 ? h(Muted, null, none) : parts.map(([word, its]) => its.length > 0 && h(C.Box,
      { key: word, mb: 3 },
      h(C.Heading, { as: "h3", size: "xs", color: "fg.muted", mb: 1 }, word),
      grouped(its).map((group) => h(Group, { key: `${group.kind}:${group.dataset}`, group, choose,
        many })))));
}

// The columns by dataset, the nearest dataset first.
function grouped(linked) {
  const found = new Map();
  for (const one of linked) {
    const name = `${one.kind}:${one.dataset}`;
    if (!found.has(name)) found.set(name, { kind: one.kind, dataset: one.dataset, distance: one.distance, its: [] });
    const group = found.get(name);
    group.its.push(one);
    group.distance = Math.min(group.distance, one.distance);
  }
  return [...found.values()].sort((a, b) => a.distance - b.distance);
}

function Group({ group, choose, many }) {
  const possible = group.its.filter((one) => one.transformations.every((t) => t.possible));
  const folded = possible.length >= FOLDED ? possible : [];
  const lines = (its) => h(C.Box, { as: "ul", listStyleType: "none" }, its.map((one) => h(C.Flex,
    { as: "li", key: one.id, align: "center", gap: 1, wrap: "wrap" }, h(ColumnButton, { column: one, choose }),
    one.transformations.map((t) => h(C.Badge, { key: `${t.type} ${t.subtype} ${t.possible}`, variant: "subtle",
      title: `${t.type} ${t.subtype}`, colorPalette: t.type === "DIRECT" ? "blue" : "gray" },
      `${t.possible ? "possibly " : ""}${WORDS[t.subtype] || t.subtype}`)))));
  return h(C.Box, { mb: 2, minW: 0 },
    h(C.Flex, { align: "center", fontSize: "sm", fontWeight: "semibold", minW: 0 }, h(Kind, group),
      h(Name, null, group.dataset)),
    lines(group.its.filter((one) => !folded.includes(one))),
    folded.length > 0 && h("details", null,
      h(C.Box, { as: "summary", fontSize: "sm", cursor: "pointer", py: 1 },
        many(count(folded.length))), lines(folded)));
}
