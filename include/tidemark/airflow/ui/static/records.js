// Records of a topic, read from Kafka on demand: bounded, page by page, as text.

import { Answered, C, count, h, Muted, Name, ours, useAnswer, useState, when } from "./ui.js";
import { Rows } from "./table.js";

const PORTION = 20;

// A button, then the records. `query`: {uid, key, partition, start, end}, within the ranges of the checkpoint.
export function Records({ pipeline, checkpoint, query, word = "Show the records" }) {
  const [asked, setAsked] = useState([]);
  const [all, setAll] = useState(false);
  if (asked.length === 0) {
    return h(C.Button, { size: "xs", variant: "outline", onClick: () => setAsked([null]) }, word);
  }
  const wanted = all ? { ...query, key: undefined } : query;
  const whole = () => {
    setAll(true);
    setAsked([null]);
  };
  return h(C.Flex, { direction: "column", gap: 2, w: "100%", minW: 0, "data-records": checkpoint },
    asked.map((after, n) => h(Portion, { key: `${all} ${n}`, pipeline, checkpoint, query: { ...wanted, after },
      last: n === asked.length - 1, further: (next) => setAsked([...asked, next]), whole })),
    h(C.Box, null, h(C.Button, { size: "xs", variant: "ghost", onClick: () => setAsked([]) }, "Hide the records")));
}

const STOPS = {
  records: "as many as one look reads", bytes: "as many bytes as one look reads", time: "as long as one look lasts",
};

function Portion({ pipeline, checkpoint, query, last, further, whole }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "details", checkpoint, "records"],
    { ...query, limit: PORTION }), 0);
  return h(Answered, { answer, what: "records from Kafka" }, (data) => h(C.Box, { minW: 0 },
    data.ranges.filter((r) => r.why).map((r) => h(C.Text, { key: r.partition, fontSize: "sm", color: "orange.fg",
      overflowWrap: "anywhere" }, h("bdi", null, r.partition), ` [${count(r.start)}, ${count(r.end)}): `,
    r.kept_start < r.kept_end ? `only [${count(r.kept_start)}, ${count(r.kept_end)}) is left. ` : "nothing is left. ",
    `${r.why}.`)),
    query.key && !data.by_key && h(Muted, null, "The key comes of a join, so records of all keys are shown."),
    data.records.length > 0 && h(Table, { data }),
    h(C.Flex, { gap: 3, align: "center", wrap: "wrap", mt: 1 },
      h(Muted, { role: "status" }, summary(data, query)),
      last && data.next && h(C.Button, { size: "xs", variant: "outline", onClick: () => further(data.next) },
        "Look further"),
      last && !data.next && data.by_key && data.records.length === 0 && data.looked_at > 0
        && h(C.Button, { size: "xs", variant: "outline", onClick: whole }, "Show records of every key"))));
}

function summary(data, query) {
  const shown = data.records.length === 0 ? `No record${query.key && data.by_key ? " of this key" : ""} is`
    : data.records.length === 1 ? "1 record is" : `${count(data.records.length)} records are`;
  const looked = `${shown} shown, of ${count(data.looked_at)} looked at`;
  if (data.stopped_by === "end") return `${looked}. The offsets were read to their end.`;
  const why = STOPS[data.stopped_by] ? `, ${STOPS[data.stopped_by]}` : "";
  return `${looked}${why}. There may be more.`;
}

const COLUMNS = [
  { title: "Partition", cell: (r) => h(Name, { most: "12rem" }, r.partition) },
  { title: "Offset", end: true, cell: (r) => count(r.offset) },
  { title: "Time (UTC)", cell: (r) => when(r.timestamp) },
  { title: "Key", cell: (r) => h(Text, { data: r.key, most: "12rem" }) },
  { title: "Value", cell: (r) => h(Text, { data: r.value, most: "42rem" }) },
  { title: "Could not be applied", cell: (r) => (typeof r.reason === "string" ? h(Name, null, r.reason)
    : Object.entries(r.dead_letters).map(([uid, why]) => h(C.Text, { key: uid, color: "red.fg" },
      h("bdi", null, uid), ": ", h("bdi", null, why)))) },
];

function Table({ data }) {
  const letters = data.records.some((r) => Object.keys(r.dead_letters).length > 0);
  const columns = letters ? [...COLUMNS] : COLUMNS.slice(0, -1);
  if (data.records.some((r) => r.filtered))
    columns.push({ title: "Filtered", cell: (r) => (r.filtered ? "left out by where" : "") });
  return h(Rows, { name: "Records", columns, rows: data.records,
    keyOf: (r) => `${r.partition} ${r.offset}` });
}

// Untrusted bytes, as inert text in a separate box.
function Text({ data, most }) {
  if (data === null) return h(Muted, { as: "span" }, "null");
  const tail = data.cut ? ` … ${count(data.size)} bytes in all` : "";
  return h(C.Box, { maxW: most, maxH: "12rem", overflow: "auto", whiteSpace: "pre-wrap", overflowWrap: "anywhere",
    fontFamily: "mono", fontSize: "xs" },
  data.encoding === "utf-8" ? h("bdi", null, data.text) : h("bdi", null, "hex ", data.text),
  tail && h(Muted, { as: "span", fontSize: "xs" }, tail));
}

// Dead letters of a checkpoint, with the reasons.
export function DeadLetters({ pipeline, checkpoint, tasks }) {
  const some = tasks.filter((t) => t.dead_lettered > 0);
  if (some.length === 0) return h(Muted, null, "Every operator could apply every record that it read.");
  return h(C.Flex, { direction: "column", gap: 3 }, some.map((t) => h(Letters, { key: t.uid, pipeline, checkpoint,
    uid: t.uid })));
}

// Records that another operator emitted: several have one offset, and their paths distinguish them.
function withPaths(columns, rows) {
  if (!rows.some((r) => r.path.length > 0)) return columns;
  return [...columns.slice(0, 2), { title: "Path", cell: (r) => r.path.join(".") }, ...columns.slice(2)];
}

const MOST = 25;

function Letters({ pipeline, checkpoint, uid }) {
  const [offset, setOffset] = useState(0);
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "details", checkpoint, "dead-letters"],
    { uid, limit: MOST, offset: offset || undefined }), 0);
  const columns = [...COLUMNS.slice(0, -1)];
  columns.splice(2, 0, { title: "Reason", cell: (r) => h(Name, null, r.reason) });
  return h(Answered, { answer, what: "dead letters" }, (data) => h(C.Box, { minW: 0, "data-letters": uid },
    h(C.Text, { fontSize: "sm", mb: 1 }, h("b", null, h("bdi", null, uid)),
      ` could not apply ${count(data.matching)}`),
    h(Rows, { name: `Dead letters of ${uid}`, columns: withPaths(columns, data.rows), rows: data.rows,
      keyOf: (r) => `${r.partition} ${r.offset} ${r.path}` }),
    data.matching > MOST && h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm" },
      h(C.Button, { size: "xs", variant: "outline", disabled: offset === 0,
        onClick: () => setOffset(Math.max(0, offset - MOST)) }, "Earlier"),
      h("span", { role: "status" }, `${count(offset + 1)}–${count(Math.min(offset + MOST, data.matching))} of `
        + count(data.matching)),
      h(C.Button, { size: "xs", variant: "outline", disabled: offset + MOST >= data.matching,
        onClick: () => setOffset(offset + MOST) }, "Later"))));
}
