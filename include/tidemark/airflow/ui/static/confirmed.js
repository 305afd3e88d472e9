// A form that triggers a DAG after you confirm it, then shows the progress of the run.

import { airflow, ask, C, dagRun, h, Inside, Muted, Name, Panel, Trouble, useAnswer, useState } from "./ui.js";

export function Confirmed({ dag, title, word, conf, says, children, close, danger, ready = true }) {
  const [state, setState] = useState({});
  const send = async (event) => {
    event.preventDefault();
    setState({ sent: true });
    try {
      const made = await ask(airflow(["dags", dag.id, "dagRuns"]), { logical_date: null, conf });
      setState({ sent: true, run: made.dag_run_id });
    } catch (error) {
      setState({ error });
    }
  };
  return h(Panel, { title, mt: 2, aside: h(C.Button, { size: "xs", variant: "ghost", onClick: close }, "Close") },
    h("form", { onSubmit: send },
      h(C.Flex, { direction: "column", gap: 2, align: "flex-start" },
        says && h(Muted, null, says), children,
        dag.paused && h(C.Text, { fontSize: "sm", color: "orange.fg" },
          `DAG ${dag.id} is paused: the run waits until you unpause it.`),
        state.error && h(Trouble, { error: state.error }),
        state.run ? h(Run, { dag: dag.id, run: state.run })
          : h(C.Button, { type: "submit", size: "sm", colorPalette: danger ? "red" : "brand",
            disabled: !ready || state.sent }, state.sent ? "Triggering …" : word))));
}

function Run({ dag, run }) {
  const answer = useAnswer(airflow(["dags", dag, "dagRuns", run]), 2000);
  const state = answer.data ? answer.data.state : "queued";
  const tone = { success: "green", failed: "red" }[state] || "blue";
  return h(C.Flex, { gap: 2, align: "center", wrap: "wrap", fontSize: "sm", role: "status", "data-run": run },
    "Run ", h(Inside, { to: dagRun(dag, run) }, h(Name, { most: "26rem" }, run)),
      h(C.Badge, { colorPalette: tone }, state));
}

export const Field = ({ label, help, ...more }) => h(C.Box,
  { as: "label", fontSize: "sm", w: "22rem", maxW: "100%" }, label,
  h(C.Input, { size: "sm", ...more }), help && h(Muted, { fontSize: "xs" }, help));
