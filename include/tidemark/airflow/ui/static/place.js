// The place in the address: pipeline, view, checkpoint and filters. Back and Forward move between views.

import { C, h, useEffect, useRef, useState } from "./ui.js";

const { Link, useLocation } = globalThis.ReactRouterDOM;
const MOVED = "tidemark:moved";

export const VIEWS = [["overview", "Overview"], ["history", "History"], ["compare", "Compare"],
  ["timelines", "Timelines and savepoints"], ["retention", "Retention"], ["time", "Event time"],
  ["letters", "Dead letters"], ["publications", "Publications"], ["origin", "Row to source"],
  ["columns", "Columns"], ["configuration", "Configuration"]];
// A checkpoint has its own view below the tab History, the backlog below the overview.
const BELOW = { checkpoint: "history", backlog: "overview" };
export const tabOf = (view) => BELOW[view] || view;

const whole = (text) => (/^[1-9][0-9]{0,11}$/.test(text || "") ? Number(text) : null);
const day = (text) => (/^\d{4}-\d\d-\d\d$/.test(text || "") ? text : "");
export const FILTERS = { status: "", timeline: "", text: "", pinned: "", since: "", until: "", sort: "", offset: null };
// Parts of the address that one view has, with their defaults; a list may occur several times. Other views drop them:
// the restore points of a comparison; another rule of retention, and a savepoint that it assumes to be gone; the
// question of Row to source, a key of a state at a checkpoint, or a sink, a checkpoint and values; the column whose
// lineage is shown; the operator and reason of dead letters; the operator of windows or timers; a publication.
const OF_VIEW = {
  compare: { left: null, right: null },
  retention: { keep: "", without: "" },
  origin: { uid: "", sink: "", at: "", key: [], where: [] },
  columns: { column: "" },
  letters: { operator: "", reason: "" },
  time: { operator: "" },
  publications: { publication: "" },
};
const PARTS = Object.assign({}, ...Object.values(OF_VIEW));
export const NO_FILTER = { ...FILTERS, ...PARTS };

function read(hash) {
  const asked = new URLSearchParams(hash.slice(1));
  const checkpoint = whole(asked.get("checkpoint"));
  const wanted = asked.get("view");
  const known = wanted in BELOW || VIEWS.some(([id]) => id === wanted) ? wanted : "overview";
  // An address of 0.1 names a checkpoint in the history.
  const view = known === "history" && checkpoint ? "checkpoint" : known === "checkpoint" && !checkpoint ? "history"
    : known;
  const filters = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, asked.get(name) || ""]));
  const parts = Object.fromEntries(Object.entries(OF_VIEW[view] || {}).map(([name, none]) => [name,
    Array.isArray(none) ? asked.getAll(name) : asked.get(name) || none]));
  return { pipeline: asked.get("pipeline"), view, checkpoint, scope: asked.get("scope") || "", ...filters,
    since: day(filters.since), until: day(filters.until), offset: whole(filters.offset), ...PARTS, ...parts,
    form: asked.get("form"), from: asked.get("from") };
}

export function hashOf(place) {
  const own = OF_VIEW[place.view] || {};
  const kept = Object.entries(place).filter(([name]) => name in own || !(name in PARTS))
    .flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, one]))
    .filter(([name, value]) => Array.isArray(own[name]) || (value !== null && value !== ""));
  return `#${new URLSearchParams(kept)}`;
}

const CLOSED = { form: null, from: null };
// In the state of a history entry: the entry before it is the same place without the form.
const OVER = "tidemark:form";
let left = 0;

// The place, and `go(part)`, a step that Back undoes; `go(part, { replace: true })` adds no step.
// The link has the path with the fragment, because Airflow's <base> would resolve a bare fragment to the home page.
// It bypasses Airflow's router, which would draw all of Airflow at each step, but listens to it.
export function usePlace() {
  useLocation();
  const [, draw] = useState(0);
  useEffect(() => {
    const again = () => {
      left = 0;
      draw((n) => n + 1);
    };
    addEventListener("popstate", again);
    addEventListener(MOVED, again);
    return () => {
      removeEventListener("popstate", again);
      removeEventListener(MOVED, again);
    };
  }, []);
  const place = read(location.hash);
  const go = (part, { replace = false } = {}) => {
    const next = { ...place, ...part };
    const hash = hashOf(next);
    if (hash === location.hash) return;
    const same = hashOf({ ...next, ...CLOSED }) === hashOf({ ...place, ...CLOSED });
    const over = Boolean(next.form) && same && (replace ? opened() : !place.form);
    history[replace ? "replaceState" : "pushState"]({ ...history.state, [OVER]: over }, "",
      location.pathname + location.search + hash);
    dispatchEvent(new Event(MOVED));
  };
  return [place, go];
}

const opened = () => Boolean(history.state && history.state[OVER]);

const PAGE = "/plugin/checkpoints";
// The tab of a DAG has the same views.
const isPage = () => /\/plugin\/(dag-)?checkpoints$/.test(location.pathname);

// The form in the address, such as form=restore&from=chk-16: a link opens it, and Back closes it. To close it is the
// same step back, so that one more Back leaves the place; a form that a link has opened has no such step.
export function useForm() {
  const [place, go] = usePlace();
  const open = (form, from = null) => go({ form, from });
  const close = () => {
    if (Date.now() - left < 1000) return;
    if (!opened()) {
      go(CLOSED, { replace: true });
      return;
    }
    left = Date.now();
    history.back();
  };
  return { form: place.form, from: place.from, open, close };
}

// A link to a place of the page Checkpoints; on that page itself, and in the tab of a DAG, it is a step that keeps it
// mounted.
export function PlaceLink({ at, replace = false, children, ...more }) {
  const [, go] = usePlace();
  const step = (event) => {
    if (!isPage() || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go({ ...CLOSED, checkpoint: null, ...at }, { replace });
  };
  return h(C.Link, { asChild: true, color: "fg.info", ...more },
    h(Link, { to: `${PAGE}${hashOf(at)}`, replace, onClick: step }, children));
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

// The title of the window while a page is shown. Airflow sets its own title when it has removed the page before, which
// may be later, so changes are watched. Without a title it stays as it is.
export function useTitle(title) {
  useEffect(() => {
    if (!title) return undefined;
    let host = document.title;
    const set = () => {
      if (!document.title.startsWith(`${title} - `)) {
        host = document.title;
        document.title = `${title} - ${host.split(" - ").pop()}`;
      }
    };
    const watch = new MutationObserver(set);
    set();
    watch.observe(document.head, { subtree: true, childList: true, characterData: true });
    return () => {
      watch.disconnect();
      document.title = host;
    };
  }, [title]);
}
