// Records of a topic, read from Kafka on demand: bounded, page by page, as text; and dead letters by reason.

import { Copy, save } from "./copying.js";
import { fieldsOf } from "./fields.js";
import { PlaceLink } from "./place.js";
import { Answered, ask, C, color, count, counted, h, inZone, Muted, Name, ours, React, Trouble, useAnswer, useState,
  when } from "./ui.js";
import { Rows } from "./table.js";

const PORTION = 20;

// The state of a request for records or rows: in addition to other states, the permission may be missing.
export function Payload({ answer, what, children }) {
  if (answer.error && answer.error.status === 403) return h(Hidden, { error: answer.error });
  return h(Answered, { answer, what }, children);
}

export const Hidden = ({ error }) => h(C.Box, { role: "note", "data-hidden": true, p: 3, bg: "bg.muted", fontSize: "sm",
  borderRadius: "sm", borderLeftWidth: "4px", borderColor: "border.emphasized" },
h(C.Text, { fontWeight: "semibold", overflowWrap: "anywhere" }, error.what),
error.safe && h(Muted, null, error.safe),
error.next && h(Muted, null, `Next: ${error.next}`));

// A button, then the records. `query`: {uid, key, partition, start, end}, within the ranges of the checkpoint.
export function Records({ pipeline, checkpoint, query, word = "Show the records", open = false }) {
  const [asked, setAsked] = useState(open ? [null] : []);
  const [all, setAll] = useState(false);
  if (asked.length === 0) {
    return h(C.Button, { size: "xs", variant: "outline", alignSelf: "flex-start", maxW: "100%",
      onClick: () => setAsked([null]) },
    h(C.Box, { as: "span", overflow: "hidden", textOverflow: "ellipsis" }, word));
  }
  const wanted = all ? { ...query, key: undefined } : query;
  const whole = () => {
    setAll(true);
    setAsked([null]);
  };
  return h(C.Flex, { direction: "column", gap: 2, w: "100%", minW: 0, "data-records": checkpoint },
    asked.map((after, n) => h(Portion, { key: `${all} ${n}`, pipeline, checkpoint, query: { ...wanted, after },
      last: n === asked.length - 1, further: (next) => setAsked([...asked, next]), whole })),
    !open && h(C.Box, null, h(C.Button, { size: "xs", variant: "ghost", onClick: () => setAsked([]) },
      "Hide the records")));
}

function Portion({ pipeline, checkpoint, query, last, further, whole }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints", "details", checkpoint, "records"],
    { ...query, limit: PORTION }), 0);
  return h(Payload, { answer, what: "records from Kafka" }, (data) => h(C.Box, { minW: 0 },
    data.ranges.filter((r) => r.why).map((r) => h(C.Text, { key: r.partition, fontSize: "sm", color: "orange.fg",
      overflowWrap: "anywhere" }, h("bdi", null, r.partition), ` [${count(r.start)}, ${count(r.end)}): `,
    r.kept_start < r.kept_end ? `only [${count(r.kept_start)}, ${count(r.kept_end)}) is left. ` : "nothing is left. ",
    `${r.why}.`)),
    query.key && !data.by_key && h(Muted, null, "The key comes from a join, so records of all keys are shown."),
    data.records.length > 0 && h(Table, { data }),
    h(C.Flex, { gap: 3, align: "center", wrap: "wrap", mt: 1 },
      h(Muted, { role: "status" }, summary(data, query)),
      last && data.next && h(C.Button, { size: "xs", variant: "outline", onClick: () => further(data.next) },
        "Look further"),
      last && !data.next && data.by_key && data.records.length === 0 && data.looked_at > 0
        && h(C.Button, { size: "xs", variant: "outline", onClick: whole }, "Show records of every key"))));
}

const STOPS = { matches: "page is full", records: "stopped at the limit of records",
  bytes: "stopped at the limit of bytes", time: "stopped at the limit of time" };

function summary(data, query) {
  const found = query.key && data.by_key
    ? `${counted(data.records.length, "match", "matches")} in ${counted(data.looked_at, "record")}`
    : counted(data.records.length, "record");
  if (data.stopped_by === "end") return `${found} (whole range searched)`;
  return `${found} (${STOPS[data.stopped_by] || data.stopped_by}; there may be more)`;
}

const COLUMNS = [
  { title: "Partition", cell: (r) => h(Name, { most: "12rem" }, r.partition) },
  { title: "Offset", end: true, cell: (r) => count(r.offset) },
  { title: () => inZone("Time"), cell: (r) => when(r.timestamp) },
  { title: "Key", cell: (r) => h(Text, { data: r.key, most: "12rem" }) },
];
const value = (raw) => ({ title: "Value", cell: (r) => h(Fields, { data: r.value, raw }) });
const COPY = { title: "Copy", cell: (r) => r.value && h(Copy, { text: () => r.value.text,
  what: `the value at ${r.partition} ${r.offset}` }) };
const LETTERS = { title: "Rejected", cell: (r) => Object.entries(r.dead_letters).map(([uid, why]) => h(C.Text,
  { key: uid, color: "red.fg" }, h("bdi", null, uid), ": ", h("bdi", null, why))) };
const FILTERED = { title: "Filtered", cell: (r) => (r.filtered ? "left out by where" : "") };

function Table({ data }) {
  const [raw, setRaw] = useState(false);
  const columns = [...COLUMNS, value(raw),
    ...(data.records.some((r) => Object.keys(r.dead_letters).length > 0) ? [LETTERS] : []),
    ...(data.records.some((r) => r.filtered) ? [FILTERED] : []), COPY];
  return h(React.Fragment, null,
    h(Raw, { raw, setRaw, there: data.records.some((r) => fieldsOf(r.value)) }),
    h(Rows, { name: "Records", columns, rows: data.records, keyOf: (r) => `${r.partition} ${r.offset}` }));
}

const Raw = ({ raw, setRaw, there }) => there && h(C.Button, { size: "2xs", variant: "ghost", "aria-pressed": raw,
  onClick: () => setRaw(!raw) }, raw ? "Show fields" : "Show raw JSON");

// The fields of a JSON object, each value as it is written in the record; anything else as text.
function Fields({ data, raw }) {
  const found = raw ? null : fieldsOf(data);
  if (found === null) return h(Text, { data, most: "42rem" });
  return h(C.Flex, { wrap: "wrap", columnGap: 4, rowGap: 0, minW: "26rem", maxW: "42rem", fontSize: "xs",
    whiteSpace: "normal" },
    found.map(([name, text], n) => h("span", { key: n, "data-field": name },
      h("bdi", { style: { color: color("fg.muted") } }, name), " ",
      h(C.Box, { as: "bdi", fontFamily: "mono", overflowWrap: "anywhere" }, text))));
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

// Dead letters of a checkpoint: totals by operator and reason, which open the records.
export function DeadLetters({ pipeline, checkpoint, tasks, released }) {
  const answer = useAnswer(!released && tasks.some((t) => t.dead_lettered > 0)
    ? ours(["pipelines", pipeline, "checkpoints", "details", checkpoint, "rejections"]) : null, 0);
  if (!tasks.some((t) => t.dead_lettered > 0)) {
    return h(Muted, null, tasks.length > 0 ? "Every operator could apply every record that it read."
      : "The checkpoint is not completed: its dead letters are not counted.");
  }
  const counts = (answer.error || released) && h(C.Box, { mb: 2, fontSize: "sm" },
    tasks.filter((t) => t.dead_lettered > 0).map((t) => h(C.Text, { key: t.uid },
      `${counted(t.dead_lettered, "record")} rejected by `,
      h("b", null, h("bdi", null, t.uid)))));
  return h(React.Fragment, null, counts,
    released ? h(Muted, null, "Retention has released the checkpoint: its dead letters can no longer be shown.")
      : h(Answered, { answer, what: "dead letters" }, (data) => h(Reasons, { data, pipeline, checkpoint })),
    h(C.Box, { mt: 3, fontSize: "sm" }, h(PlaceLink, { at: { pipeline, view: "letters" } },
      "All dead letters of the live timeline")));
}

function Reasons({ data, pipeline, checkpoint }) {
  const all = data.operators.flatMap((o) => o.reasons.map((r) => ({ ...r, uid: o.uid, of: o.read })));
  const [open, setOpen] = useState(all.length === 1 ? `${all[0].uid} ${all[0].reason}` : null);
  const shares = data.operators.length > 1 && data.operators.reduce((sum, o) => sum + o.letters, 0) > data.records;
  return h(C.Flex, { direction: "column", gap: 3 },
    h(C.Text, { fontSize: "sm", "data-rejected": data.records }, h("b", null, counted(data.records, "record")),
      " rejected", shares && ", some by several operators"),
    data.operators.map((o) => h(C.Box, { key: o.uid, minW: 0 },
      h(C.Text, { fontSize: "sm", mb: 1 }, `${counted(o.letters, "record")} rejected by `,
        h("b", null, h("bdi", null, o.uid))),
      h(C.Flex, { gap: 2, wrap: "wrap" }, o.reasons.map((r) => h(C.Button, { key: r.reason, size: "xs",
        variant: "outline", maxW: "100%", "data-reason": r.reason, "aria-expanded": open === `${o.uid} ${r.reason}`,
        onClick: () => setOpen(open === `${o.uid} ${r.reason}` ? null : `${o.uid} ${r.reason}`) },
      h(Name, { most: "20rem" }, r.reason), ` ${count(r.letters)}${share(r.letters, o.read)}`))),
      o.reasons.filter((r) => open === `${o.uid} ${r.reason}`).map((r) => h(Letters, { key: r.reason, pipeline,
        checkpoint, uid: o.uid, reason: r.reason })))));
}

const share = (n, all) => (all > 0 ? ` (${((100 * n) / all).toFixed(1)} %)` : "");

// Records that another operator emitted: several have one offset, and their paths distinguish them.
function withPaths(columns, rows) {
  if (!rows.some((r) => r.path.length > 0)) return columns;
  return [...columns.slice(0, 2), { title: "Path", cell: (r) => r.path.join(".") }, ...columns.slice(2)];
}

const MOST = 25;

const Letters = ({ pipeline, checkpoint, uid, reason }) => h(LetterPages, { uid, query: { uid, reason },
  parts: ["pipelines", pipeline, "checkpoints", "details", checkpoint, "dead-letters"],
  name: `${pipeline}-chk-${checkpoint}-${uid}-${reason.replace(/\W+/g, "_")}.jsonl` });

// Dead letters of a route, page by page; `first` is a column in front, and `name` that of a download.
export function LetterPages({ parts, query, uid, first, name }) {
  const [offset, setOffset] = useState(0);
  const [raw, setRaw] = useState(false);
  const answer = useAnswer(ours(parts, { ...query, limit: MOST, offset: offset || undefined }), 0);
  const columns = (rows) => [...(first ? [first] : []), ...withPaths([...COLUMNS, value(raw), COPY], rows)];
  return h(Payload, { answer, what: "dead letters" }, (data) => h(C.Box, { minW: 0, mt: 2, "data-letters": uid },
    h(C.Flex, { gap: 2, mb: 1, wrap: "wrap", align: "center" },
      h(Raw, { raw, setRaw, there: data.rows.some((r) => fieldsOf(r.value)) }),
      h(Download, { parts, query, all: data.matching, name })),
    h(Rows, { name: `Dead letters of ${uid}`, columns: columns(data.rows), rows: data.rows,
      keyOf: (r) => `${r.checkpoint || ""} ${r.partition} ${r.offset} ${r.path}` }),
    data.matching > MOST && h(C.Flex, { gap: 3, mt: 2, align: "center", fontSize: "sm" },
      h(C.Button, { size: "xs", variant: "outline", disabled: offset === 0,
        onClick: () => setOffset(Math.max(0, offset - MOST)) }, "Previous"),
      h("span", { role: "status" }, `${count(offset + 1)}–${count(Math.min(offset + MOST, data.matching))} of `
        + count(data.matching)),
      h(C.Button, { size: "xs", variant: "outline", disabled: offset + MOST >= data.matching,
        onClick: () => setOffset(offset + MOST) }, "Next"))));
}

const AT_ONCE = 100;
const LARGEST = 1000;

// Saves letters as lines of JSON, the first thousand at most.
function Download({ parts, query, all, name }) {
  const [state, setState] = useState({});
  const go = async () => {
    setState({ read: 0 });
    try {
      const rows = [];
      while (rows.length < Math.min(all, LARGEST)) {
        const page = await ask(ours(parts, { ...query, limit: AT_ONCE, offset: rows.length || undefined }));
        if (page.rows.length === 0) break;
        rows.push(...page.rows);
        setState({ read: rows.length });
      }
      save(name, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
      setState({});
    } catch (error) {
      setState({ error });
    }
  };
  const word = all > LARGEST ? `Download the first ${count(LARGEST)}` : `Download ${count(all)}`;
  return h(React.Fragment, null,
    h(C.Button, { size: "2xs", variant: "outline", disabled: state.read !== undefined, onClick: go },
      state.read === undefined ? word : `Reading … ${count(state.read)}`),
    state.error && h(Trouble, { error: state.error }));
}
