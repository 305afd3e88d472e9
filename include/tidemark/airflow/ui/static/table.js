// A table that scrolls sideways, with headings for screen readers.

import { C, color, h } from "./ui.js";

// columns: [{title, cell: (row) => node, end: align right, for numbers}]
export function Rows({ columns, rows, name, keyOf, onRow, chosen }) {
  const head = columns.map((c) => h(C.Table.ColumnHeader,
    { key: c.title, scope: "col", textAlign: c.end ? "end" : "start", whiteSpace: "nowrap" }, c.title));
  const body = rows.map((row) => {
    const key = keyOf(row);
    // Not bg.emphasized: it has the colour of a button's border.
    const look = chosen === key ? { bg: "bg.muted", boxShadow: `inset 3px 0 0 ${color("fg.info")}` } : {};
    return h(C.Table.Row, { key, "data-key": key, ...look, ...acts(onRow, row) },
      columns.map((c, n) => h(C.Table.Cell, { key: c.title, textAlign: c.end ? "end" : "start",
        whiteSpace: "nowrap", ...(n === 0 ? { as: "th", scope: "row", fontWeight: "normal" } : {}) }, c.cell(row))));
  });
  return h(C.Box, { overflowX: "auto", tabIndex: 0, role: "region", "aria-label": name },
    h(C.Table.Root, { size: "sm", "aria-label": name },
      h(C.Table.Header, null, h(C.Table.Row, null, head)),
      h(C.Table.Body, null, body)));
}

function acts(onRow, row) {
  if (!onRow) return {};
  const go = (event) => {
    if (event.target.closest("a, button")) return;
    onRow(row);
  };
  const press = (event) => {
    if (event.target !== event.currentTarget || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    onRow(row);
  };
  return { onClick: go, onKeyDown: press, tabIndex: 0, cursor: "pointer", _hover: { bg: "bg.subtle" } };
}
