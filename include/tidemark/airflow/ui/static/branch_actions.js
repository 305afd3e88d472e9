// What can be done with a branch: promote it, or close it. Each triggers its DAG; without one, the command is shown.

import { Confirmed, FormDialog } from "./confirmed.js";
import { useForm } from "./place.js";
import { Answered, C, Check, h, Muted, ours, Trouble, useAnswer, useState } from "./ui.js";

const COMMANDS = { promote: (pipeline, name) => `tidemark promote ${pipeline} ${name}`,
  close: (pipeline, name) => `tidemark timeline close ${pipeline} ${name}` };
const WORDS = { promote: "Promote", close: "Close" };
const SAYS = {
  promote: "The fork becomes the live timeline, and the one that is live now ends; all of its checkpoints stay "
    + "restorable. Task plan of the run checks that the fork has applied every record that the live timeline has.",
  close: "The timeline ends. Its checkpoints stay until retention releases them. No files are deleted now.",
};

// A timeline that is neither live nor closed may be promoted or closed.
export const isOpen = (t) => Boolean(t) && !t.is_live && ["fork", "not live"].includes(t.fate);

// The buttons of a branch; each opens its form.
export function BranchActions({ timeline, kinds = ["promote", "close"] }) {
  const { form, from, open } = useForm();
  return h(C.Flex, { gap: 1, wrap: "wrap" }, kinds.map((kind) => h(C.Button, { key: kind, size: "2xs",
    variant: "outline", ...(kind === "close" ? { colorPalette: "red" } : {}), "aria-haspopup": "dialog",
    "aria-expanded": form === kind && from === timeline, "aria-label": `${WORDS[kind]}… ${timeline}`,
    onClick: () => open(kind, timeline) }, `${WORDS[kind]}…`)));
}

// Why a timeline can be neither promoted nor closed; null if it can.
function wrongBranch(timeline, name) {
  if (!timeline) return { what: `There is no timeline ${name}`, next: "choose one in Timelines and savepoints." };
  return isOpen(timeline) ? null : { what: `Timeline ${name} is ${timeline.is_live ? "live" : timeline.fate}`,
    next: "only a fork that is still open can be promoted or closed." };
}

// Promotes or closes the timeline that the address names; `name` is the kind of form.
export function BranchForm({ pipeline, name, from, dag, close }) {
  const tree = useAnswer(ours(["pipelines", pipeline, "timelines"]), 0);
  const [options, setOptions] = useState({ discard: false, send: false });
  const title = `${WORDS[name]} ${from}`;
  if (!dag) {
    return h(FormDialog, { title, name, close }, h(Muted, { mb: 2 }, SAYS[name]),
      h(Command, { why: "You may trigger no DAG that does it. With access to the warehouse, type:",
        text: COMMANDS[name](pipeline, from) }));
  }
  const wrong = tree.data && wrongBranch(tree.data.find((t) => t.timeline === from), from);
  const conf = { pipeline, name: from, execute: true, ...(name === "promote" ? options : {}) };
  const box = (option, word) => h(Check, { key: option, checked: options[option],
    onChange: (on) => setOptions({ ...options, [option]: on }) }, word);
  return h(Confirmed, { pipeline, dag, title, name, conf, close, says: SAYS[name], danger: name === "close",
    ready: Boolean(tree.data) && !wrong },
    h(Answered, { answer: tree, what: "the timelines" }, () => wrong && h(Trouble, { error: wrong })),
    !wrong && name === "promote" && [
      box("discard", "Also if the fork lacks records that the live timeline has applied"),
      box("send", "Send the records that the fork has emitted and the live timeline has not sent")]);
}

// A command of the command line, to be copied.
export function Command({ why, text, ...more }) {
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true), () => setCopied(false));
  return h(C.Box, { fontSize: "sm" }, why && h(Muted, { mb: 1 }, why),
    h(C.Flex, { gap: 2, align: "center", wrap: "wrap", ...more },
      h(C.Code, { overflowWrap: "anywhere", whiteSpace: "pre-wrap", "data-command": true }, h("bdi", null, text)),
      navigator.clipboard && h(C.Button, { size: "2xs", variant: "outline", onClick: copy,
        "aria-label": copied ? "Copied" : `Copy ${text}` },
        copied ? "Copied" : "Copy")));
}
