// Errors name the next command of a terminal. A page says what to click, and keeps the command for copying.

const WHOLE = /^(?:run |type:? )?(tidemark [^()]*?)\.?(?:\s{2,}\((.*)\))?\.?$/;
const CLICKS = [
  [/^tidemark checkpoint list/, "open History, which lists the checkpoints"],
  [/^tidemark savepoint list/, "open Timelines and savepoints, which lists the savepoints"],
  [/^tidemark timeline list/, "open Timelines and savepoints, which lists the timelines"],
  [/^tidemark run \S+$/, "press Checkpoint now, or wait for the next DAG run"],
  [/^tidemark retention plan/, "open Timelines and savepoints, which shows the next retention"],
];

// {text, command}: what to do, and the command that does it in a terminal; null if the advice has none.
export function advice(next) {
  const found = WHOLE.exec(next || "");
  if (!found) return { text: (next || "").replace("repeat the command", "retry"), command: null };
  const [, command, why] = found;
  const click = CLICKS.find(([pattern]) => pattern.test(command));
  return { text: click ? `${click[1]}.` : `run a command in a terminal${why ? `: it ${why}` : ""}.`, command };
}
