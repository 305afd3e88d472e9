// A form in a dialog: it triggers a DAG when you confirm it, shows the run, and links to what the run made.

import { forget } from "./dags.js";
import { Failures } from "./failure.js";
import { Made } from "./made.js";
import { airflow, ask, Badge, C, changed, Check, dagRun, h, Inside, Muted, Name, ours, Trouble, useAnswer, useEffect,
  useRef, useState } from "./ui.js";

const OVER = ["success", "failed"];
const LOOKS = { success: ["green", "✓", "Success"], failed: ["red", "✕", "Failed"] };

// The first field has the focus, or a button that changes nothing which cannot be undone; else the dialog as a whole.
const FIRST = ["[data-autofocus]", "form :is(input, select, textarea):not([type=hidden], [disabled])",
  "form button[type=submit]:not([data-danger], [disabled])"];
const firstOf = (form) => FIRST.map((one) => form.querySelector(one)).find(Boolean) || form;

// A dialog as Airflow's own ones: Esc closes it, it keeps the focus, and gives it back to the button that opened it.
export function FormDialog({ title, name, close, children }) {
  const [before] = useState(() => document.activeElement);
  useEffect(() => () => {
    setTimeout(() => before && before.isConnected && before !== document.body && before.focus());
  }, []);
  const shut = h(C.Dialog.CloseTrigger, { asChild: true }, h(C.CloseButton, { size: "sm", "aria-label": "Close" }));
  const content = useRef(null);
  return h(C.Dialog.Root, { open: true, size: "lg", scrollBehavior: "inside", closeOnInteractOutside: false,
    initialFocusEl: () => content.current && firstOf(content.current),
    onOpenChange: (now) => (now.open ? undefined : close()) },
  h(C.Portal, null, h(C.Dialog.Backdrop), h(C.Dialog.Positioner, null,
    h(C.Dialog.Content, { "data-form": name, mx: 3, ref: content },
      h(C.Dialog.Header, null, h(C.Dialog.Title, { overflowWrap: "anywhere", pr: 6 }, title)),
      h(C.Dialog.Body, null, children), shut))));
}

// The button of what cannot be undone; Enter in a field does not press it.
export const DANGER = { colorPalette: "red", "data-danger": true };
export const onlyButton = (event) => event.key === "Enter" && event.target.tagName === "INPUT"
  && event.preventDefault();

// `dry`: the conf of a dry run, which has its own button. `dryFirst`: that button leads until this conf was tried.
export function Confirmed({ pipeline, dag, title, name, conf, dry, dryFirst, says, children, close, danger,
  ready = true }) {
  const [state, setState] = useState({});
  const [unpause, setUnpause] = useState(true);
  const [paused, setPaused] = useState(dag.paused);
  const running = state.sent && !state.over;
  const tried = state.ended === "success" && state.conf === JSON.stringify(dry);
  const lead = dryFirst && !tried ? dry : conf;
  const send = async (wanted) => {
    const text = JSON.stringify(wanted);
    setState({ sent: true, conf: text });
    try {
      if (paused && unpause && dag.mayUnpause) {
        await ask(airflow(["dags", dag.id], { update_mask: "is_paused" }), { is_paused: false }, "PATCH");
        setPaused(false);
        forget(pipeline);
      }
      const made = await ask(airflow(["dags", dag.id, "dagRuns"]), { logical_date: null, conf: wanted });
      setState({ sent: true, conf: text, run: made.dag_run_id });
    } catch (error) {
      setState({ error: error.status === 403 && !error.kind ? { ...error,
        next: `ask for the right to trigger DAG ${dag.id}.` } : error });
    }
  };
  const over = (ended) => setState((was) => ({ ...was, over: true, ended }));
  const submit = (event) => {
    event.preventDefault();
    send(lead);
  };
  // The leading button is also that of Enter, unless it is red.
  const button = (word, wanted) => h(C.Button, { size: "sm", disabled: !ready || running, ...(wanted === lead
    ? { type: "submit", ...(danger && wanted === conf ? DANGER : { colorPalette: "brand" }) }
    : { type: "button", variant: "outline", onClick: () => send(wanted) }) }, word);
  return h(FormDialog, { title, name, close },
    h("form", { onSubmit: submit, onKeyDown: danger && lead === conf ? onlyButton : undefined }, h(C.Flex,
      { direction: "column", gap: 3, align: "stretch" },
      says && h(Muted, null, says), children,
      paused && h(Unpause, { dag, unpause, setUnpause }),
      state.error && h(Trouble, { error: state.error }),
      state.run && h(Run, { key: state.run, pipeline, dag: dag.id, run: state.run, over }),
      h(C.Flex, { gap: 2, wrap: "wrap", justify: "flex-end" }, dry && button("Dry run", dry), button(title, conf)))));
}

// As in Airflow's own trigger form.
function Unpause({ dag, unpause, setUnpause }) {
  if (!dag.mayUnpause) {
    return h(C.Text, { fontSize: "sm", color: "orange.fg" },
      `DAG ${dag.id} is paused, and you may not unpause it: the run waits until another user does.`);
  }
  return h(C.Box, null,
    h(Check, { checked: unpause, onChange: setUnpause }, "Unpause DAG ", h(Name, null, dag.id)),
    !unpause && h(C.Text, { fontSize: "sm", color: "orange.fg" }, "The run waits until you unpause the DAG."));
}

function Run({ pipeline, dag, run, over }) {
  const answer = useAnswer(ours(["dags", dag, "outcome"], { run_id: run }),
    (data) => (data && OVER.includes(data.state) ? 0 : 1000));
  const outcome = answer.data;
  const state = outcome ? outcome.state : "queued";
  const ended = OVER.includes(state);
  useEffect(() => {
    if (!ended) return;
    over(state);
    changed();
  }, [ended]);
  const [tone, sign, word] = LOOKS[state] || ["blue", "…", state[0].toUpperCase() + state.slice(1)];
  return h(C.Box, { role: "status", "data-run": run, "data-run-state": state, borderWidth: "1px",
    borderColor: "border", borderRadius: "md", p: 3 },
  h(C.Flex, { gap: 2, align: "center", wrap: "wrap", fontSize: "sm" },
    !ended && h(C.Spinner, { size: "xs" }), "Run ",
    h(Inside, { to: dagRun(dag, run) }, h(Name, { most: "20rem" }, run)), h(Badge, { tone, sign }, word)),
  answer.error && h(Trouble, { error: answer.error }),
  outcome && h(Failures, { dag, run, outcome }),
  state === "success" && h(Made, { pipeline, dag, run, outcome }));
}

export function Field({ label, help, error, ...more }) {
  const look = { size: "sm", "aria-invalid": error ? true : undefined, borderColor: error ? "red.solid" : undefined };
  return h(C.Box, { as: "label", fontSize: "sm", w: "100%", maxW: "22rem" }, label, h(C.Input, { ...look, ...more }),
    error && h(C.Text, { fontSize: "xs", color: "red.fg", role: "alert" }, error),
    help && !error && h(Muted, { fontSize: "xs" }, help));
}
