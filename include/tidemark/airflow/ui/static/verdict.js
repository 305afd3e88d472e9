// The verdict on a pipeline as the server gives it: a word with a sign and a colour, the reason, and the next run.

import { Badge, C, count, day, h, Muted, percent, React, soon } from "./ui.js";

// Sign, colour and word of each state, the worst first.
const STATES = {
  FAILING: ["✕", "red", "Failing"],
  LATE: ["!", "red", "Late"],
  UNKNOWN: ["?", "gray", "Unknown"],
  STOPPED: ["■", "orange", "Stopped"],
  PAUSED: ["‖", "orange", "Paused"],
  HEALTHY: ["✓", "green", "Healthy"],
};

const look = (state) => STATES[state] || ["?", "gray", String(state)];
export const wordOf = (state) => look(state)[2];
export const weightOf = (state) => (state in STATES ? Object.keys(STATES).indexOf(state) : 2);
export const needsAttention = (state) => weightOf(state) < 2;

export function VerdictBadge({ state, ...more }) {
  const [sign, tone, word] = look(state);
  return h(Badge, { tone, sign, "data-verdict": state, ...more }, word);
}

// The next run in words; null if nothing runs by the clock.
export function nextRun(verdict, schedule) {
  if (verdict.next_run) return `next ${soon(verdict.next_run, verdict.now)}`;
  if (!schedule || schedule.kind !== "time" || schedule.is_paused) return null;
  return schedule.end ? `end date ${day(schedule.end)}` : null;
}

// Facts in addition to the reason.
function details(verdict, schedule) {
  return [
    verdict.lag === null ? null : `lag ${count(verdict.lag)}`,
    verdict.rejected_share === null ? null : `${percent(verdict.rejected_share)} dead letters`,
    nextRun(verdict, schedule),
  ].filter(Boolean);
}

export const Reason = ({ verdict, schedule }) => h(React.Fragment, null,
  h("bdi", null, verdict.reason), details(verdict, schedule).map((text) => ` · ${text}`).join(""));

export function VerdictLine({ verdict, schedule }) {
  const [, tone] = look(verdict.state);
  return h(C.Flex, { role: "group", "aria-label": "Verdict", gap: 3, align: "center", wrap: "wrap", px: 3, py: 2,
    borderWidth: "1px", borderColor: "border", borderLeftWidth: "4px", borderLeftColor: `${tone}.solid`,
    borderRadius: "md", "data-verdict-line": verdict.state },
  h("span", { role: "status" }, h(VerdictBadge, { state: verdict.state, fontSize: "sm" })),
  h(C.Text, { overflowWrap: "anywhere", minW: 0, flex: "1 1 16rem" }, h(Reason, { verdict, schedule })),
  verdict.late_at !== null && verdict.state === "HEALTHY" && h(Muted, null, `late after ${soon(verdict.late_at,
    verdict.now)}, by ${verdict.late_by === "setting" ? "the deadline" : "the schedule"}`));
}
