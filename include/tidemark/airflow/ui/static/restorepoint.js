// The choice of a restore point, by time, checkpoint or savepoint, and the effect of a restore in human units.

import { Field } from "./confirmed.js";
import { Choice } from "./history.js";
import { list } from "./made.js";
import { Answered, C, Check, count, counted, duration, Facts, h, Muted, Name, ours, useAnswer, useEffect, useState,
  when } from "./ui.js";
import { hostZone, momentOf, wallTime } from "./zoned.js";

// The form's `from` in the address: chk-17, or the name of a savepoint.
export const beginningOf = (from) => (!from ? {} : /^chk-[1-9][0-9]*$/.test(from)
  ? { checkpoint: Number(from.slice(4)) } : { savepoint: from });
export const wordOf = ({ checkpoint, savepoint }) => savepoint || (checkpoint ? `chk-${checkpoint}` : "");
// As the forms of DAGs name it.
export const confOf = ({ checkpoint, savepoint }) => (savepoint ? { savepoint } : { checkpoint: `chk-${checkpoint}` });

const DAY = 86400000;
const AGO = [["1 hour ago", DAY / 24], ["1 day ago", DAY], ["1 week ago", 7 * DAY]];
const WAYS = [["time", "By time"], ["checkpoint", "Checkpoint"], ["savepoint", "Savepoint"]];

// Reports {as_of}, {checkpoint} or {savepoint}; null while it is incomplete.
export function PointChoice({ pipeline, onPoint }) {
  const zone = hostZone();
  const [way, setWay] = useState("time");
  const [wall, setWall] = useState(() => wallTime(Date.now() - DAY, zone));
  const [typed, setTyped] = useState("");
  const [name, setName] = useState("");
  const pins = useAnswer(ours(["pipelines", pipeline, "savepoints"]), 0).data || [];
  const number = /^(?:chk-)?([1-9][0-9]{0,11})$/.exec(typed.trim());
  const moment = momentOf(wall, zone);
  const point = { time: moment && { as_of: moment }, checkpoint: number && { checkpoint: Number(number[1]) },
    savepoint: name ? { savepoint: name } : null }[way];
  const text = JSON.stringify(point || null);
  // Not at every key.
  useEffect(() => {
    const timer = setTimeout(() => onPoint(JSON.parse(text)), 300);
    return () => clearTimeout(timer);
  }, [text]);
  return h(C.Flex, { direction: "column", gap: 2 },
    h(C.RadioGroup.Root, { size: "sm", value: way, "aria-label": "Restore point",
      onValueChange: (event) => setWay(event.value) },
    h(C.Flex, { gap: 4, wrap: "wrap" }, WAYS.map(([id, word]) => h(C.RadioGroup.Item, { key: id, value: id },
      h(C.RadioGroup.ItemHiddenInput), h(C.RadioGroup.ItemIndicator), h(C.RadioGroup.ItemText, null, word))))),
    way === "time" && h(C.Flex, { gap: 2, wrap: "wrap", align: "flex-end" },
      h(Field, { label: `As of (${zone})`, type: "datetime-local", value: wall, required: true,
        onChange: (e) => setWall(e.target.value) }),
      AGO.map(([word, ms]) => h(C.Button, { key: word, size: "xs", variant: "outline",
        onClick: () => setWall(wallTime(Date.now() - ms, zone)) }, word))),
    way === "checkpoint" && h(Field, { label: "Checkpoint", value: typed, required: true, placeholder: "chk-17",
      maxLength: 16, error: typed && !number ? "An id, as in chk-17." : null,
      onChange: (e) => setTyped(e.target.value) }),
    way === "savepoint" && h(Choice, { label: "Savepoint", value: name, onChange: setName,
      options: [["", pins.length ? "choose a savepoint" : "there is none"],
        ...pins.map((s) => [s.name, `${s.name} (${s.checkpoint})`])] }));
}

// What a restore does, from its plan; a checkbox decides about sinks that can be rolled back.
export function RestoreEffect({ answer, sinks, setSinks, force, setForce }) {
  return h(Answered, { answer, what: "the plan" }, (plan) => {
    const backed = plan.sinks.filter((s) => s.goes_back);
    const sent = plan.sinks.filter((s) => !s.goes_back);
    return h(C.Box, { fontSize: "sm", "data-plan": plan.checkpoint },
      h(C.Box, { as: "ul", pl: 5, mb: 2, listStyleType: "disc", mt: 1 },
        h("li", null, "Live state goes back to ", h("b", null, when(plan.logical_time)),
          `: ${plan.checkpoint} on `, h(Name, { most: "12rem" }, plan.timeline), "."),
        plan.left.length === 0
          ? h("li", null, "No checkpoint leaves the live timeline.")
          : h("li", null, `${counted(plan.left.length, "checkpoint")} (${counted(plan.records, "record")}) ${
            plan.left.length === 1 ? "leaves the live timeline and stays" : "leave the live timeline and stay"
          } restorable.`),
        plan.left.length > 0 && h("li", null, plan.reread > 0
          ? `About ${duration(plan.reread_duration)} to read ${counted(plan.reread, "offset")} again.`
          : "No record is read again: the restore point has read them all."),
        backed.map((s) => h("li", { key: s.name }, "Sink ", h(Name, { most: "12rem" }, s.name), s.rows_since === 0
          ? " has no rows newer than the checkpoint." : sinks
          ? ` goes back too: ${counted(s.rows_since, "row")} newer than the checkpoint leave it.`
          : ` keeps all rows, also ${counted(s.rows_since, "row")} newer than the checkpoint.`)),
        sent.map((s) => h("li", { key: s.name }, "Sink ", h(Name, { most: "12rem" }, s.name),
          ": rows that were sent stay."))),
      backed.some((s) => s.rows_since > 0) && h(Check, { checked: sinks, onChange: setSinks },
        "Also roll back Delta sinks"),
      plan.drained && h(Check, { checked: force, onChange: setForce },
        "Continue, although the pipeline was drained with this savepoint"),
      h(C.Box, { as: "details", mt: 2 }, h("summary", null, "Details"), h(Facts, { facts: {
        "Timeline that ends": plan.closes,
        "Checkpoints set aside": list(plan.left),
        "Records to re-read": Object.entries(plan.read_again)
          .map(([tp, range]) => `${tp} [${count(range.start)}, ${count(range.end)})`).join(", ") || "none",
      } })));
  });
}

export const Nothing = () => h(Muted, null, "Choose a restore point to see what a restore would do.");
