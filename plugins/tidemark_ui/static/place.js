// The place in the address: pipeline, view, checkpoint and filters. Back and Forward go through views and checkpoints.

import { useEffect, useRef, useState } from "./ui.js";

const { useLocation } = globalThis.ReactRouterDOM;

export const VIEWS = [["overview", "Overview"], ["history", "History"], ["timelines", "Timelines and savepoints"],
  ["origin", "Row to source"], ["configuration", "Configuration"]];
// A checkpoint has a view of its own below the tab History.
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

// The place, and how to go elsewhere: `go(part)` is a step that Back undoes, `go(part, { replace: true })` is none.
// The path is given with the fragment: Airflow's <base> would lead a fragment alone to its home. Airflow's router is
// not asked, because it mounts the page anew when it goes somewhere for the first time; what it does is listened to.
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

// A text that is typed at once and told 300 ms later; a text that comes from elsewhere, as by Back, takes its place.
export function useTyped(text, tell) {
  const [typed, setTyped] = useState(text);
  const last = useRef(text);
  const later = useRef(tell);
  later.current = tell;
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
