// The place in the address: pipeline, view, checkpoint and filters. Back and Forward move between views.

import { useEffect, useRef, useState } from "./ui.js";

const { useLocation } = globalThis.ReactRouterDOM;

export const VIEWS = [["overview", "Overview"], ["history", "History"], ["timelines", "Timelines and savepoints"],
  ["origin", "Row to source"], ["configuration", "Configuration"]];
// A checkpoint has its own view below the tab History.
const BELOW = { checkpoint: "history" };
export const tabOf = (view) => BELOW[view] || view;

const whole = (text) => (/^[1-9][0-9]{0,11}$/.test(text || "") ? Number(text) : null);
const FILTERS = { status: "", timeline: "", text: "", pinned: "", offset: null };
export const NO_FILTER = { ...FILTERS };

function read(hash) {
  const asked = new URLSearchParams(hash.slice(1));
  const checkpoint = whole(asked.get("checkpoint"));
  const wanted = asked.get("view");
  const known = wanted in BELOW || VIEWS.some(([id]) => id === wanted) ? wanted : "overview";
  // An address of 0.1 names a checkpoint in the history.
  const view = known === "history" && checkpoint ? "checkpoint" : known === "checkpoint" && !checkpoint ? "history"
    : known;
  const filters = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, asked.get(name) || ""]));
  return { pipeline: asked.get("pipeline"), view, checkpoint, ...filters, offset: whole(filters.offset) };
}

export function hashOf(place) {
  const kept = Object.entries(place).filter(([, value]) => value !== null && value !== "");
  return `#${new URLSearchParams(kept)}`;
}

// The place, and `go(part)`, a step that Back undoes; `go(part, { replace: true })` adds no step.
// The link has the path with the fragment, because Airflow's <base> would resolve a bare fragment to the home page.
// It bypasses Airflow's router, which would mount the page again at its first navigation, but listens to it.
export function usePlace() {
  useLocation();
  const [, draw] = useState(0);
  useEffect(() => {
    const again = () => draw((n) => n + 1);
    addEventListener("popstate", again);
    return () => removeEventListener("popstate", again);
  }, []);
  const place = read(location.hash);
  const go = (part, { replace = false } = {}) => {
    const hash = hashOf({ ...place, ...part });
    if (hash === location.hash) return;
    const address = location.pathname + location.search + hash;
    history[replace ? "replaceState" : "pushState"](history.state, "", address);
    draw((n) => n + 1);
  };
  return [place, go];
}

// An input that reports its text 300 ms after you type; a change from elsewhere, such as Back, replaces the text.
export function useTyped(text, format) {
  const [typed, setTyped] = useState(text);
  const last = useRef(text);
  const later = useRef(format);
  later.current = format;
  useEffect(() => {
    if (text !== last.current) setTyped(text);
    last.current = text;
  }, [text]);
  useEffect(() => {
    if (typed === last.current) return undefined;
    const timer = setTimeout(() => {
      last.current = typed;
      later.current(typed);
    }, 300);
    return () => clearTimeout(timer);
  }, [typed]);
  return [typed, setTyped];
}
