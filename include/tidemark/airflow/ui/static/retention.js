// The retention calendar: when the next sweep runs, and for each checkpoint whether it stays, for how long, and why.

import { useDags } from "./dags.js";
import { Choice } from "./history.js";
import { list } from "./made.js";
import { PlaceLink, useForm, usePlace } from "./place.js";
import { Storage } from "./storage.js";
import { Answered, Badge, bytes, C, count, counted, duration, h, inFull, inZone, Muted, Name, ours, Panel, React,
  useAnswer, useEffect, useState, when } from "./ui.js";
import { Middle, Rows } from "./table.js";

const DECLARED = { way: "declared", n: "6", rule: "", without: "" };

export function Retention({ pipeline, facts }) {
  const [asked, setAsked, query] = useWhatIf();
  const there = (how) => ours(["pipelines", pipeline, "retention-calendar"], { ...query, ...how });
  const answer = useAnswer(there({ more: false }), 30000);
  const isRead = answer.data && answer.data.indexed.read === answer.data.indexed.of;
  const sizes = useAnswer(isRead ? there({ sizes: true }) : null, 0).data;
  return h(C.Flex, { direction: "column", gap: 3 },
    h(Panel, { title: "Retention", aside: facts.may_trigger && h(Trigger, { pipeline }) },
      h(WhatIf, { pipeline, asked, setAsked }),
      h(Answered, { answer, what: "the retention calendar" }, (data) => h(Calendar, { data, pipeline,
        freed: sizes && same(sizes, data) ? sizes.freed_bytes : null }))),
    h(Storage, { pipeline }));
}

// The question, which the address holds as the REST route takes it, and its query.
function useWhatIf() {
  const [{ keep, without }, go] = usePlace();
  const [asked, setAsked] = useState(() => askedIn(keep, without));
  const query = useSettled(queryOf(asked));
  useEffect(() => go({ keep: query.keep || "", without: query.without || "" }, { replace: true }),
    [query.keep, query.without]);
  useEffect(() => {
    const shown = queryOf(asked);
    if (keep !== (shown.keep || "") || without !== (shown.without || "")) setAsked(askedIn(keep, without));
  }, [keep, without]);
  return [asked, setAsked, query];
}

function askedIn(keep, without) {
  const [, n] = /^keep_last\(([1-9][0-9]{0,5})\)$/.exec(keep) || [];
  return { ...DECLARED, without, ...(n ? { way: "last", n } : keep && { way: "rule", rule: keep }) };
}

const same = (one, other) => one.rule === other.rule && list(one.released, 1e6) === list(other.released, 1e6);

const queryOf = ({ way, n, rule, without }) => ({ without: without || undefined,
  keep: { declared: undefined, last: /^[1-9][0-9]{0,5}$/.test(n) ? `keep_last(${n})` : undefined,
    rule: rule.trim() || undefined }[way] });

// The value, once it has not changed for 400 ms.
function useSettled(value) {
  const text = JSON.stringify(value);
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), 400);
    return () => clearTimeout(timer);
  }, [text]);
  return JSON.parse(settled);
}

function Trigger({ pipeline }) {
  const dags = useDags(pipeline);
  const { form, open } = useForm();
  if (dags === null || !dags.retention) return null;
  return h(C.Button, { size: "xs", variant: "outline", colorPalette: "red", "aria-haspopup": "dialog",
    "aria-expanded": form === "retention", onClick: () => open("retention") }, "Run retention…");
}

const WAYS = [["declared", "Declared rule"], ["last", "What if: keep the last …"], ["rule", "What if: another rule"]];

function WhatIf({ pipeline, asked, setAsked }) {
  const pins = useAnswer(ours(["pipelines", pipeline, "savepoints"]), 10000).data || [];
  const change = (part) => setAsked({ ...asked, ...part });
  const incomplete = asked.way !== "declared" && queryOf(asked).keep === undefined;
  return h(C.Flex, { role: "group", "aria-label": "What if", gap: 3, wrap: "wrap", align: "flex-end", mb: 3 },
    h(Choice, { label: "Rule", value: asked.way, options: WAYS, onChange: (way) => change({ way }) }),
    asked.way === "last" && h(C.Input, { size: "sm", w: "6rem", type: "number", min: 1, "aria-label": "Keep the last",
      value: asked.n, onChange: (e) => change({ n: e.target.value }) }),
    asked.way === "rule" && h(C.Input, { size: "sm", w: "22rem", maxW: "100%", "aria-label": "Another rule",
      value: asked.rule, maxLength: 1000, placeholder: "keep_last(3) | daily(30)",
      onChange: (e) => change({ rule: e.target.value }) }),
    pins.length > 0 && h(Choice, { label: "Without a savepoint", value: asked.without,
      onChange: (without) => change({ without }), options: [["", "All savepoints stay"],
        ...pins.map((s) => [s.name, `What if: ${s.name} is disposed of`])] }),
    incomplete && h(C.Text, { fontSize: "sm", color: "orange.fg", role: "status" }, asked.way === "last"
      ? "Type a number of checkpoints. Until then, the calendar shows the declared rule."
      : "Type a rule. Until then, the calendar shows the declared rule."));
}

function Calendar({ data, pipeline, freed }) {
  const reading = data.indexed.read < data.indexed.of;
  const released = data.released.length > 0;
  const why = data.lets_go.length ? ` (${data.lets_go.join(", ")})` : "";
  const next = data.dag_id === null ? "No DAG runs retention for this pipeline."
    : data.is_paused ? "DAG " : data.next_run ? `Next retention: ${inFull(data.next_run)}.`
      : "Retention runs on demand only.";
  return h(C.Box, { "data-calendar": data.is_declared ? "declared" : "what-if" },
    h(C.Box, { fontSize: "sm", mb: 3 },
      h(C.Text, { fontWeight: "semibold" }, next, data.is_paused && h(React.Fragment, null,
        h(Name, null, data.dag_id), " is paused: nothing is released until you unpause it.")),
      !data.is_declared && h(C.Badge, { colorPalette: "purple", mr: 2 }, "what if"),
      h("span", { role: "status" }, reading
        ? `Reading manifests: ${count(data.indexed.read)} of ${count(data.indexed.of)}; the calendar follows.`
        : released ? `${data.is_declared ? "Releases" : "It would release"} ${list(data.released)}${why}.`
        : data.rule === null ? "No rule is set: every checkpoint is kept." : "Releases nothing."),
      released && freed !== null && h("span", null,
        data.grace_ms > 0 ? ` Frees ${bytes(freed)}, after a grace period of ${duration(data.grace_ms)}.`
          : ` Frees ${bytes(freed)} at once.`),
      data.waiting_files > 0 && h("span", null, ` ${data.waiting_files === 1
        ? "1 file that an earlier run freed waits" : `${count(data.waiting_files)} files that earlier runs freed wait`
      } for the end of the grace period, ${inFull(data.waiting_until)} at the earliest.`),
      data.disposed.length > 0 && h("span", null, ` Savepoints that have expired end: ${list(data.disposed)}.`),
      h(Muted, null, data.rule !== null && h(React.Fragment, null, "Rule: ", h(Name, { mono: true, most: "40rem" },
        data.rule), ". "), data.last_sweep && `Last retention: ${inFull(data.last_sweep)}.`)),
    !reading && data.checkpoints.length > 0 && h(Rows, { name: "Retention calendar", columns: columnsOf(pipeline, data),
      rows: data.checkpoints,
      keyOf: (c) => c.checkpoint }),
    data.total > data.checkpoints.length && h(Muted, { mt: 2 },
      `${count(data.checkpoints.length)} of ${count(data.total)} checkpoints; older ones that stay are left out.`));
}

const columnsOf = (pipeline, data) => [
  { title: "Checkpoint", cell: (c) => h(PlaceLink, { at: { pipeline, view: "checkpoint", checkpoint: c.id } },
    c.checkpoint) },
  // Next to the checkpoint, so that a narrow screen has it without scrolling.
  { title: "Next retention", cell: (c) => (c.released ? h(Badge, { tone: "orange", sign: "−" }, "Released")
    : h(Badge, { tone: "green", sign: "✓" }, "Kept")) },
  { title: "Why", cell: (c) => h(C.Box, { whiteSpace: "normal", minW: "16rem" }, c.released
    ? data.lets_go.join(", ") : [...c.rules, ...c.pins.map((p) => p.why)].map((why, n) => h("span",
      { key: why }, n > 0 && "; ", h("bdi", null, why)))) },
  { title: inZone("Until"), cell: (c) => (c.released ? "–" : untilOf(c, data)) },
  { title: inZone("As of"), cell: (c) => when(c.logical_time) },
  { title: "Timeline", cell: (c) => h(Middle, null, c.timeline) },
];

// When a kept checkpoint goes, as far as that is known: once none of its reasons holds any more.
function untilOf(c, data) {
  const byRule = c.rules.length === 0 ? null : c.goes_after === null
    ? (data.rule === null ? "a rule is set" : `more than ${data.horizon} more checkpoints`)
    : counted(c.goes_after, "more checkpoint");
  const lasting = c.pins.filter((p) => p.until === null);
  const byPin = lasting.some((p) => p.why.startsWith("savepoint ")) ? "the savepoint is disposed of"
    : lasting.length > 0 ? "nothing else needs it" : when(c.pins.map((p) => p.until).sort().pop());
  return [byRule, c.pins.length > 0 && byPin].filter(Boolean).join(", and ");
}
