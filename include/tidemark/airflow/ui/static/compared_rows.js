// The first keys and rows that differ: before and after, field by field.

import { Rows } from "./table.js";
import { C, count, h, Muted, Name, useState } from "./ui.js";

const FEW = 20;
const SIGNS = { inserted: ["green", "+ inserted"], changed: ["orange", "~ changed"], deleted: ["red", "− deleted"] };

const CHANGE = { title: "Change", cell: (r) => h(C.Badge, { colorPalette: SIGNS[r.change][0] }, SIGNS[r.change][1]) };

// Values as they are stored: an identifier gets no separators.
function verbatim(value) {
  if (value === null || value === undefined) return "null";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

const Value = ({ value, ...more }) => h(Name, { mono: true, most: "16rem",
  ...(value === null || value === undefined ? { color: "fg.muted", fontStyle: "italic" } : {}), ...more },
verbatim(value));

const MARK = { px: 1, borderRadius: "sm", textDecoration: "none", color: "fg" };
const Gone = ({ value }) => h(C.Box, { as: "del", ...MARK, bg: "red.subtle" }, h(Value, { value, color: "fg" }));
const New = ({ value }) => h(C.Box, { as: "ins", ...MARK, bg: "green.subtle" }, h(Value, { value, color: "fg" }));

// A field of one row: both values if it differs, one if it does not.
function Field({ row, name }) {
  const had = row.before && name in row.before;
  const has = row.after && name in row.after;
  if (row.change === "inserted") return has ? h(New, { value: row.after[name] }) : null;
  if (row.change === "deleted") return had ? h(Gone, { value: row.before[name] }) : null;
  if (row.changed.includes(name)) {
    return h(C.Box, { as: "span", "data-differs": name, whiteSpace: "nowrap" },
      h(Gone, { value: row.before[name] }), " → ", h(New, { value: row.after[name] }));
  }
  if (had && !has) return h(Gone, { value: row.before[name] });
  if (has && !had) return h(New, { value: row.after[name] });
  return h(Value, { value: has ? row.after[name] : null, color: "fg.muted" });
}

// Fields that differ come first, then the others in their own order.
function fieldsOf(rows) {
  const all = [...new Set(rows.flatMap((r) => [...Object.keys(r.after || {}), ...Object.keys(r.before || {})]))];
  const moved = new Set(rows.flatMap((r) => r.changed));
  return [...all.filter((name) => moved.has(name)), ...all.filter((name) => !moved.has(name))];
}

const fields = (rows) => fieldsOf(rows).map((name) => ({ title: name, cell: (row) => h(Field, { row, name }) }));

export function KeyRows({ found, total, onCheckpoint }) {
  const columns = [
    ...found.keys.map((name) => ({ title: name, cell: (r) => h("b", null, h(Value, { value: r.key[name] })) })),
    CHANGE,
    ...fields(found.rows),
    { title: "Written by", cell: (r) => r.checkpoint && h(C.Button, { size: "2xs", variant: "outline",
      onClick: () => onCheckpoint(r.checkpoint) }, `chk-${r.checkpoint}`) },
  ];
  return h(Some, { columns, rows: found.rows, total, name: `Keys of ${found.uid} that differ`, word: "keys",
    order: "in order of keys", keyOf: (r) => JSON.stringify(r.key) });
}

export function SinkRows({ found, total }) {
  const rows = found.rows.map((row, n) => ({ ...row, n }));
  return h(Some, { columns: [CHANGE, ...fields(rows)], rows, total, name: `Rows of ${found.sink} that differ`,
    word: "rows", order: "in order of their ids", keyOf: (r) => r.n });
}

function Some({ columns, rows, total, name, word, order, keyOf }) {
  const [all, setAll] = useState(rows.length <= FEW);
  const some = all ? rows : rows.slice(0, FEW);
  return h(C.Box, null, h(Rows, { name, columns, rows: some, keyOf }),
    h(C.Flex, { gap: 3, align: "center", wrap: "wrap", mt: 2 },
      h(Muted, { role: "status" }, some.length < total
        ? `The first ${count(some.length)} of ${count(total)} ${word} that differ, ${order}.`
        : `All ${count(total)} ${word} that differ, ${order}.`),
      !all && h(C.Button, { size: "xs", variant: "outline", onClick: () => setAll(true) },
        `Show ${count(rows.length)}`)));
}
