// The publications of a pipeline: which checkpoint each target has, and how far it is behind.

import { C, count, h, Name, ours, Panel, Trouble, useAnswer, when } from "./ui.js";
import { Rows } from "./table.js";

const TONES = { current: ["green", "✓ current"], behind: ["orange", "! behind"], begun: ["blue", "… publishing"],
  dropped: ["gray", "■ dropped"] };

export function Publications({ pipeline, onCheckpoint }) {
  const answer = useAnswer(ours(["pipelines", pipeline, "publications"]), 15000);
  if (answer.error) {
    return h(Panel, { title: "Publications" }, h(Trouble, { error: answer.error, again: answer.again }));
  }
  // Most pipelines publish nothing, so nothing is shown while the answer is on its way.
  if (!answer.data || answer.data.length === 0) return null;
  const columns = [
    { title: "Publication", cell: (p) => h(Name, null, p.publication) },
    { title: "Operator", cell: (p) => h(Name, null, p.uid) },
    { title: "State", cell: (p) => h(Badge, { state: p.state }) },
    { title: "Checkpoint", cell: (p) => (p.checkpoint === null ? "–" : h(C.Button, { size: "2xs", variant: "outline",
      onClick: () => onCheckpoint(Number(p.checkpoint.slice(4))) }, p.checkpoint)) },
    { title: "Version", end: true, cell: (p) => p.version ?? "–" },
    { title: "Behind", end: true, cell: (p) => count(p.behind) },
    { title: "Published (UTC)", cell: (p) => when(p.published_at) },
    { title: "Place", cell: (p) => h(Name, { most: "26rem", mono: true }, p.place) },
  ];
  return h(Panel, { title: "Publications" },
    h(Rows, { name: "Publications", columns, rows: answer.data, keyOf: (p) => p.publication }));
}

function Badge({ state }) {
  const [tone, word] = TONES[state] || ["gray", state];
  return h(C.Badge, { colorPalette: tone, variant: "subtle" }, word);
}
