// The forms that write states on a fork: a transform by a query per operator, a patch by tables of keys.

import { Confirmed, Field } from "./confirmed.js";
import { ExpiryField, NameField, NoteField, wrongExpiry, wrongName } from "./forms.js";
import { Choice } from "./history.js";
import { wordOf } from "./restorepoint.js";
import { Answered, bytes, C, Check, count, h, Muted, Name, ours, useAnswer, useState } from "./ui.js";
import { hostZone, momentOf } from "./zoned.js";

const OTHER = "*";
const RESERVED = /^(t\d+|(chk-)?\d+)$/i;
const NOTHING = { name: "", savepoint: "", note: "", expires: "", at: "", drops: false, force: false };

// What both forms share: the states of the restore point, the fork with its savepoint, and rare options.
function useFork(pipeline, begins) {
  const answer = useAnswer(ours(["pipelines", pipeline, "states"], begins), 0);
  const tree = useAnswer(ours(["pipelines", pipeline, "timelines"]), 0).data || [];
  const pins = useAnswer(ours(["pipelines", pipeline, "savepoints"], { disposed: true }), 0).data || [];
  const [asked, setAsked] = useState(NOTHING);
  const zone = hostZone();
  const moment = asked.at ? momentOf(asked.at, zone) : null;
  const pinned = pins.map((s) => s.name);
  const wrong = wrongName(asked.name, [...tree.map((t) => t.timeline), ...(asked.savepoint ? [] : pinned)], RESERVED);
  const wrongPin = wrongName(asked.savepoint, pinned, RESERVED);
  const free = !answer.data || !answer.data.drained || asked.force;
  return { answer, asked, zone, wrong, wrongPin, change: (part) => setAsked((was) => ({ ...was, ...part })),
    ready: Boolean(answer.data) && asked.name !== "" && !wrong && !wrongPin
      && !wrongExpiry(asked.expires) && free && (!asked.at || Boolean(moment)),
    conf: { pipeline, source: wordOf(begins), at: moment, note: asked.note || null, expires: asked.expires || null,
      allow_non_restored_state: asked.drops, force: asked.force } };
}

const STAYS = "The restore point, its timeline and the live timeline do not change. A dry run checks every row, and "
  + "shows here and in the log of task plan how many keys change.";

export function TransformForm({ begins, ...more }) {
  const fork = useFork(more.pipeline, begins);
  const { asked } = fork;
  const [entries, setEntries] = useState([]);
  const [groups, setGroups] = useState("");
  const queries = entries.filter((e) => e.query.trim()).map((e) => `${e.uid}=${e.query}`);
  const conf = { ...fork.conf, fork: asked.name, name: asked.savepoint || null, queries,
    key_groups: groups ? Number(groups) : null };
  const works = entries.length === queries.length && (queries.length > 0 || groups !== "");
  return h(Confirmed, { ...more, title: "Transform", conf: { ...conf, execute: true },
    dry: { ...conf, execute: false }, dryFirst: true, ready: fork.ready && works,
    says: `A query per operator reads the states of ${wordOf(begins)}; the answers become the states of a fork. `
      + `Operators without a query keep their state. ${STAYS}` },
  h(Answered, { answer: fork.answer, what: "the states" }, (data) => h(Column, null,
    h(Readable, { data }),
    h(Operators, { data, entries, setEntries, word: "Add a query for…", editor: QueryEditor,
      begin: (state) => ({ query: firstQuery(state) }) }),
    h(Field, { label: "Key groups", type: "number", min: 1, max: 32768, value: groups,
      placeholder: `as stored (${[...new Set(data.states.map((s) => s.key_groups))].join(", ")})`,
      onChange: (e) => setGroups(e.target.value),
      help: "Of every state. They limit how many tasks one operator can use." }),
    h(Fork, { fork, data }))));
}

export function PatchForm({ begins, ...more }) {
  const fork = useFork(more.pipeline, begins);
  const { asked } = fork;
  const [entries, setEntries] = useState([]);
  const tables = (part) => entries.filter((e) => e[part].trim()).map((e) => `${e.uid}=${e[part].trim()}`);
  const conf = { ...fork.conf, name: asked.savepoint || asked.name, timeline: asked.savepoint ? asked.name : null,
    set_tables: tables("sets"), delete_tables: tables("deletes") };
  const works = entries.length > 0 && entries.every((e) => e.sets.trim() || e.deletes.trim());
  return h(Confirmed, { ...more, title: "Patch", conf: { ...conf, execute: true }, dry: { ...conf, execute: false },
    dryFirst: true, ready: fork.ready && works,
    says: `Tables of keys set and delete keys in the states of ${wordOf(begins)}; the result is a fork. Other keys, `
      + `and operators without a table, stay as they are. ${STAYS}` },
  h(Answered, { answer: fork.answer, what: "the states" }, (data) => h(Column, null,
    h(Operators, { data, entries, setEntries, word: "Add tables for…", editor: TablesEditor,
      begin: () => ({ sets: "", deletes: "" }) }),
    h(Fork, { fork, data }))));
}

const Column = ({ children }) => h(C.Flex, { direction: "column", gap: 3, align: "stretch", minW: 0 }, children);

// The new state is at first the same as before, or has the columns of an operator that is new.
function firstQuery(state) {
  if (state && state.reads.length > 0) return `SELECT *\nFROM ${quoted(state.uid)}`;
  return `SELECT ${state ? state.returns.map((c) => quoted(c.name)).join(", ") : ""}\nFROM `;
}

const quoted = (name) => (/^[a-z_][a-z0-9_]*$/i.test(name) ? name : `"${name.replace(/"/g, "\"\"")}"`);

// An editor per operator, and a list of those that can get one. A new uid may not be in any checkpoint yet.
function Operators({ data, entries, setEntries, word, editor, begin }) {
  const [typed, setTyped] = useState(null);
  const used = entries.map((e) => e.uid);
  const known = new Map(data.states.map((s) => [s.uid, s]));
  const offered = data.states.filter((s) => !s.refused && s.is_declared && !used.includes(s.uid));
  const refused = data.states.filter((s) => s.refused);
  const add = (uid) => setEntries([...entries, { uid, ...begin(known.get(uid)) }]);
  const pick = (uid) => (uid === OTHER ? setTyped("") : uid && add(uid));
  const take = () => {
    add(typed.trim());
    setTyped(null);
  };
  return h(Column, null,
    entries.map((entry) => h(Entry, { key: entry.uid, entry, state: known.get(entry.uid), editor,
      remove: () => setEntries(entries.filter((e) => e !== entry)),
      change: (part) => setEntries(entries.map((e) => (e === entry ? { ...e, ...part } : e))) })),
    h(Choice, { label: word, value: "", onChange: pick, options: [["", word],
      ...offered.map((s) => [s.uid, s.reads.length ? s.uid : `${s.uid} (new in ${data.newest})`]),
      [OTHER, "Another operator…"]] }),
    typed !== null && h(C.Flex, { gap: 2, align: "flex-start", wrap: "wrap" },
      h(Field, { label: "Operator", value: typed, maxLength: 63, autoFocus: true,
        onChange: (e) => setTyped(e.target.value),
        error: used.includes(typed.trim()) ? "It is in the form already." : null,
        help: "The uid, if no checkpoint has it yet." }),
      // As high as the field, below a label of the same height.
      h(C.Button, { type: "button", size: "sm", variant: "outline", mt: { base: 0, sm: "1.3125rem" },
        onClick: take,
        disabled: typed.trim() === "" || used.includes(typed.trim()) }, "Add")),
    refused.length > 0 && h(Muted, { fontSize: "xs", overflowWrap: "anywhere" }, "Not offered: ",
      refused.map((s, n) => h("span", { key: s.uid }, n > 0 && "; ", h("bdi", null, s.refused))), "."));
}

const BOX = { borderWidth: "1px", borderColor: "border", borderRadius: "md", p: 3, minW: 0 };

function Entry({ entry, state, editor, change, remove }) {
  return h(C.Box, { ...BOX, role: "group", "aria-label": entry.uid, "data-entry": entry.uid },
    h(C.Flex, { justify: "space-between", align: "center", gap: 2, mb: 2 },
      h("b", null, h(Name, null, entry.uid)),
      h(C.Button, { type: "button", size: "2xs", variant: "outline", onClick: remove,
        "aria-label": `Remove ${entry.uid}` }, "Remove")),
    h(editor, { entry, state, change }));
}

const QueryEditor = ({ entry, state, change }) => h(Column, null,
  h(C.Textarea, { size: "sm", rows: 5, fontFamily: "mono", fontSize: "xs", spellCheck: false, resize: "vertical",
    "aria-label": `Query for ${entry.uid}`, value: entry.query, onChange: (e) => change({ query: e.target.value }) }),
  state ? h(Columns, { word: "Returns, per key", columns: state.returns, keys: state.keys })
    : h(Muted, { fontSize: "xs" }, "It returns the columns that the pipeline declares for this operator."));

function TablesEditor({ entry, state, change }) {
  const field = (part, label) => h(Field, { label, value: entry[part], maxLength: 1000, fontFamily: "mono",
    onChange: (e) => change({ [part]: e.target.value }), help: "A path that the worker can read: Parquet or Delta." });
  return h(Column, null,
    field("sets", `Keys to set in ${entry.uid}`),
    state && h(Columns, { word: "Columns of that table", columns: state.returns, keys: state.keys }),
    field("deletes", `Keys to delete from ${entry.uid}`),
    state && h(Muted, { fontSize: "xs" }, "It needs the key columns only: ", h("bdi", null, state.keys.join(", ")),
      "."));
}

// The states that a query can read, those that are no longer declared included.
function Readable({ data }) {
  const readable = data.states.filter((s) => s.reads.length > 0);
  return h(C.Box, { as: "details", fontSize: "sm", "data-readable": data.checkpoint },
    h("summary", null, `States of ${data.checkpoint} that a query can read (${count(readable.length)})`),
    h(C.Flex, { direction: "column", gap: 2, mt: 2 }, readable.map((s) => h(C.Box, { key: s.uid, minW: 0 },
      h("b", null, h(Name, null, s.uid)),
      h(Muted, { as: "span", fontSize: "xs" }, ` ${count(s.rows)} stored rows, ${bytes(s.bytes)}, ${
        count(s.key_groups)} key groups${s.is_declared ? "" : ", no longer declared"}`),
      h(Columns, { columns: s.reads, keys: s.keys })))));
}

const Columns = ({ word, columns, keys }) => h(C.Box, { fontSize: "xs", color: "fg.muted", overflowWrap: "anywhere",
  maxH: "9rem", overflowY: "auto", tabIndex: columns.length > 20 ? 0 : undefined }, word && `${word}: `,
columns.map((c, n) => h("span", { key: c.name }, n > 0 && ", ",
  h(C.Box, { as: "bdi", fontFamily: "mono", color: "fg", fontWeight: keys.includes(c.name) ? "bold" : "normal",
    title: keys.includes(c.name) ? "a key column" : undefined }, c.name), " ", h("bdi", null, c.type))));

function Fork({ fork, data }) {
  const { asked, change, zone, wrong, wrongPin } = fork;
  return h(Column, null,
    h(NameField, { name: asked.name, setName: (name) => change({ name }), wrong,
      help: "Of the fork, and of the savepoint that pins it. A name is used once." }),
    data.drained && h(Check, { checked: asked.force, onChange: (force) => change({ force }) },
      "Continue, although the pipeline was drained with this savepoint"),
    h(C.Box, { as: "details", fontSize: "sm" }, h("summary", null, "More"), h(C.Flex, { direction: "column", gap: 3,
      mt: 2 },
    h(NoteField, { note: asked.note, setNote: (note) => change({ note }) }),
    h(Field, { label: "Savepoint", value: asked.savepoint, maxLength: 63, error: wrongPin,
      onChange: (e) => change({ savepoint: e.target.value }), help: "Its name, if it is not the fork's." }),
    h(ExpiryField, { expires: asked.expires, setExpires: (expires) => change({ expires }) }),
    h(Field, { label: `At (${zone})`, type: "datetime-local", value: asked.at,
      onChange: (e) => change({ at: e.target.value }),
      help: `When new and changed keys were last accessed. Empty: at the time of ${data.checkpoint}.` }),
    h(Check, { checked: asked.drops, onChange: (drops) => change({ drops }) },
      "Drop the state of operators that the pipeline no longer declares"))));
}
