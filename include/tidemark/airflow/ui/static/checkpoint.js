// The view of one checkpoint: its place in the history, its actions and its details.

import { Actions } from "./actions.js";
import { Details, useDetails } from "./details.js";
import { C, h, Panel, useEffect, useRef } from "./ui.js";

export function CheckpointView({ pipeline, facts, checkpoint, onCheckpoint, onCompare, onHistory }) {
  const answer = useDetails(pipeline, checkpoint);
  const data = answer.data || {};
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Way, { checkpoint, data, onCheckpoint, onCompare, onHistory }),
    h(Panel, { "data-details": checkpoint },
      h(Details, { answer, pipeline, checkpoint, dag: facts.dag_id, onCheckpoint,
        actions: h(Actions, { pipeline, facts, checkpoint }) })));
}

// History › chk-16, and the neighbours by id. It takes the focus, so keyboard and screen reader start here.
function Way({ checkpoint, data, onCheckpoint, onCompare, onHistory }) {
  const here = useRef(null);
  useEffect(() => {
    here.current.focus({ preventScroll: true });
    if (here.current.getBoundingClientRect().top < 0) here.current.scrollIntoView({ block: "start" });
  }, []);
  const to = (word, number, text) => h(C.Button, { key: word, size: "xs", variant: "outline", disabled: !number,
    "aria-label": number ? `${word} checkpoint, chk-${number}` : `No ${word.toLowerCase()} checkpoint`,
    onClick: () => onCheckpoint(number) }, text);
  const comparable = data.status === "COMPLETED" && !data.discarded;
  const compare = (word, left, right) => h(C.Button, { key: word, size: "xs", variant: "outline",
    onClick: () => onCompare(left, right) }, word);
  return h(C.Flex, { gap: 3, align: "center", wrap: "wrap", justify: "space-between" },
    h(C.Flex, { as: "nav", "aria-label": "Breadcrumb", gap: 2, align: "center", fontSize: "sm" },
      h(C.Button, { size: "xs", variant: "ghost", px: 1, color: "fg.info", onClick: onHistory }, "History"),
      h("span", { "aria-hidden": true }, "›"),
      h(C.Heading, { as: "h2", size: "md", ref: here, tabIndex: -1, outline: "none", "aria-current": "page" },
        `chk-${checkpoint}`)),
    h(C.Flex, { gap: 2, wrap: "wrap", role: "group", "aria-label": "Other checkpoints" },
      comparable && data.parent && !data.released.includes(data.parent)
        && compare(`Compare with parent chk-${data.parent}`, `chk-${data.parent}`, data.name),
      comparable && compare("Compare with live", data.name, "live"),
      to("Previous", data.previous, data.previous ? `‹ chk-${data.previous}` : "‹ Previous"),
      to("Next", data.next, data.next ? `chk-${data.next} ›` : "Next ›")));
}
