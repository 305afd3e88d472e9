// A table that scrolls sideways behind its first column, with headings for screen readers; and values as they are.

import { C, color, h, Muted, React, useState } from "./ui.js";

// Opaque, because the other columns pass behind it.
const STICKY = { position: "sticky", left: 0, zIndex: 1, bg: "inherit" };

// columns: [{title, cell: (row, stop) => node, end: align right, for numbers, sort: name of a measure}]; a title is a
// text or a function.
// sort: {by: "-records", change: (by) => …}; below: (row) => node, under the chosen row.
// A click on a row is `onRow`; for the keyboard, its first cell has a button.
// With `stop` as properties of those buttons, the Tab key stops at one of them, and arrow keys move between them.
export function Rows({ columns, rows, name, keyOf, onRow, chosen, sort, below }) {
  const [at, setAt] = useState(0);
  const near = Math.min(at, rows.length - 1);
  const body = rows.map((row, n) => {
    const key = keyOf(row);
    const stop = { tabIndex: n === near ? 0 : -1, onFocus: () => setAt(n) };
    return h(React.Fragment, { key },
      h(C.Table.Row, { "data-key": key, ...shade(chosen === key, n), ...clicked(onRow, row) },
        columns.map((c, i) => h(C.Table.Cell, { key: i, textAlign: c.end ? "end" : "start", whiteSpace: "nowrap",
          ...(i === 0 ? { as: "th", scope: "row", fontWeight: "normal", ...STICKY, ...edge(chosen === key) } : {}) },
        c.cell(row, stop)))),
      below && chosen === key && h(C.Table.Row, null,
        h(C.Table.Cell, { colSpan: columns.length, p: 3 }, below(row))));
  });
  return h(C.Box, { overflowX: "auto", tabIndex: 0, role: "region", "aria-label": name },
    h(C.Table.Root, { size: "sm", "aria-label": name },
      h(C.Table.Header, null, h(C.Table.Row, null,
        columns.map((c, i) => h(Head, { key: i, column: c, sort, look: i === 0 ? STICKY : {} })))),
      h(C.Table.Body, { onKeyDown: (event) => walk(event, near, rows.length) }, body)));
}

// Every second row is shaded, as in the tables of Airflow.
const shade = (chosen, n) => (chosen ? { bg: "bg.info" } : n % 2 === 0 ? { bg: "bg.muted" } : {});

const edge = (chosen) => (chosen ? { boxShadow: `inset 3px 0 0 ${color("fg.info")}` } : {});

function Head({ column, sort, look }) {
  // A title with the time zone follows the choice of the zone.
  const title = typeof column.title === "function" ? column.title() : column.title;
  const up = sort && sort.by === column.sort;
  const down = sort && sort.by === `-${column.sort}`;
  const all = { scope: "col", textAlign: column.end ? "end" : "start", whiteSpace: "nowrap", ...look };
  if (!sort || !column.sort) return h(C.Table.ColumnHeader, all, h("bdi", null, title));
  return h(C.Table.ColumnHeader, { ...all, "aria-sort": down ? "descending" : up ? "ascending" : "none" },
    h(C.Button, { size: "2xs", variant: "ghost", px: 1, mx: -1, fontWeight: "inherit", fontSize: "inherit",
      color: "inherit", onClick: () => sort.change(down ? column.sort : `-${column.sort}`) }, title,
    h("span", { "aria-hidden": true, style: { opacity: up || down ? 1 : 0.5 } }, down ? " ↓" : up ? " ↑" : " ↕")));
}

// A click of the mouse anywhere on a row; not the end of a selection of text.
function clicked(onRow, row) {
  if (!onRow) return {};
  const go = (event) => {
    if (event.target.closest("a, button, input") || String(getSelection())) return;
    onRow(row);
  };
  return { onClick: go, cursor: "pointer", _hover: { bg: "bg.info" } };
}

function walk(event, at, length) {
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: length - 1 }[event.key];
  const lines = event.currentTarget.querySelectorAll("tr > th:first-child button");
  if (next === undefined || ![...lines].includes(event.target)) return;
  event.preventDefault();
  if (lines[next]) lines[next].focus();
}

// A long name that differs at its end, as timelines and runs do: its middle is left out, hover shows it in full.
export function Middle({ children, most = 24, ...more }) {
  const text = String(children ?? "");
  const letters = [...text];
  const tail = Math.floor((most - 1) / 2);
  const shown = letters.length <= most ? text
    : `${letters.slice(0, most - 1 - tail).join("")}…${letters.slice(-tail).join("")}`;
  return h(C.Box, { as: "bdi", dir: "auto", title: text, ...more }, shown);
}

// A value of a row as it is stored: no separators in numbers, as text that does nothing.
export function Verbatim({ value, ...more }) {
  if (value === null || value === undefined) return h(Muted, { as: "span" }, value === null ? "null" : "–");
  const text = typeof value === "string" ? value : JSON.stringify(value);
  // Columns do not shrink to a letter where the table is narrow.
  return h(C.Box, { as: "bdi", dir: "auto", display: "inline-block", fontFamily: "mono", fontSize: "xs",
    minW: `min(${text.length}ch, 8rem)`, maxW: "28rem",
    maxH: "12rem", overflow: "auto", whiteSpace: "pre-wrap", overflowWrap: "anywhere", verticalAlign: "top",
    textAlign: "start", ...more }, text);
}
