// The tile on Airflow's home page: which pipelines need attention, and why.

import { Reason, VerdictBadge, needsAttention, weightOf } from "./verdict.js";
import { Answered, C, h, Inside, Muted, Name, ours, React, useAnswer } from "./ui.js";

const MOST = 6;

function PipelineVerdicts() {
  const answer = useAnswer(ours(["verdicts"]), 30000);
  // No pipelines, or none that this user may see: Airflow's page stays as it is.
  if (answer.data && answer.data.length === 0) return null;
  if (answer.error && [401, 403].includes(answer.error.status)) return null;
  return h(C.Box, { as: "section", "aria-label": "Checkpoints", borderWidth: "1px", borderColor: "border",
    borderRadius: "md", p: 3, "data-page": "home" },
  // An error has the heading as well: nothing else on this page says what it is about.
  answer.data === undefined && h(Title),
  h(Answered, { answer, what: "the pipelines" }, (data) => h(Pipelines, { data })));
}

const Title = () => h(C.Heading, { as: "h2", size: "md" }, "Checkpoints");

function Pipelines({ data }) {
  const sorted = [...data].sort((a, b) => weightOf(a.verdict.state) - weightOf(b.verdict.state)
    || a.name.localeCompare(b.name));
  const bad = sorted.filter((p) => needsAttention(p.verdict.state)).length;
  const shown = sorted.slice(0, Math.max(MOST, bad));
  return h(React.Fragment, null,
    h(C.Flex, { justify: "space-between", align: "baseline", gap: 3, wrap: "wrap", mb: 2 },
      h(Title),
      h(Muted, { role: "status" }, bad === 0 ? "No pipeline is late or failing"
        : `${bad} of ${data.length} ${data.length === 1 ? "pipeline" : "pipelines"} ${bad === 1 ? "needs" : "need"
        } attention`)),
    h(C.Box, { as: "ul", listStyleType: "none" }, shown.map((p) => h(C.Flex, { as: "li", key: p.name, gap: 3, py: 1,
      align: "center", wrap: "wrap", "data-pipeline": p.name },
    h(VerdictBadge, { state: p.verdict.state, minW: "5.5rem", justifyContent: "center" }),
    h(Inside, { to: `/plugin/checkpoints#${new URLSearchParams({ pipeline: p.name, view: "overview" })}`,
      fontWeight: "semibold", minW: "7rem" }, h(Name, null, p.name)),
    h(C.Text, { fontSize: "sm", flex: "1 1 20rem", minW: 0, overflowWrap: "anywhere" },
      h(Reason, { verdict: p.verdict, schedule: p.schedule }))))),
    shown.length < data.length && h(Inside, { to: "/plugin/checkpoints", fontSize: "sm" },
      `${data.length - shown.length} more`));
}

globalThis.PipelineVerdicts = PipelineVerdicts;
