// Texts, numbers and small components that all views share. Names are untrusted: they are rendered as text only.

import { advice } from "./advice.js";
import { inWords, iso, when, zone } from "./clock.js";

export { day, inFull, inZone, soon, when, zone, zoneName } from "./clock.js";

export const React = globalThis.React;
export const h = React.createElement;
export const C = globalThis.ChakraUI;
export const { useCallback, useEffect, useMemo, useRef, useState } = React;

export const color = (name) => `var(--chakra-colors-${name.replace(/\./g, "-")})`;

// Paths are relative to Airflow's base, which a proxy may move into a folder.
const base = () => new URL(".", document.baseURI);
const path = (parts) => parts.map(encodeURIComponent).join("/");

export const ours = (parts, query) => address("tidemark/", parts, query);
// Checkpoints: the first answer has those that the server knows, and `useAnswer` asks it to read on.
export const checkpointsOf = (pipeline, query) => ours(["pipelines", pipeline, "checkpoints"],
  { ...query, more: false });
export const airflow = (parts, query) => address("api/v2/", parts, query);

function address(below, parts, query) {
  const made = new URL(below + path(parts), base());
  for (const [name, value] of Object.entries(query || {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") made.searchParams.append(name, one);
    }
  }
  return made;
}

export async function ask(url, body, method) {
  const sent = body === undefined ? {} : { method: method || "POST", body: JSON.stringify(body) };
  const headers = { Accept: "application/json", ...(body === undefined ? {}
    : { "Content-Type": "application/json" }) };
  let answer;
  try {
    answer = await fetch(url, { credentials: "same-origin", headers, ...sent });
  } catch {
    throw { what: "Airflow does not answer", next: "Check that the API server is running. The page retries." };
  }
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw refused(answer.status, data);
  return data;
}

function refused(status, data) {
  if (data.what) return { status, kind: data.error, what: data.what, safe: data.safe, next: data.next };
  if (status === 401) return { status, what: "Your session has ended",
    next: "Reload the page to log in." };
  if (status === 403) return { status, what: "You have no permission for this",
    next: "Ask for access to the pipeline's DAG." };
  const detail = Array.isArray(data.detail) ? data.detail.map(invalid).join("; ")
    : typeof data.detail === "string" ? data.detail : JSON.stringify(data.detail || status);
  return { status, what: `Airflow refused: ${detail}`, next: "" };
}

// What a validation of FastAPI found: the field, without the part of the request that has it, and the reason.
const invalid = ({ loc, msg }) => [(loc || []).slice(1).join("."), msg].filter(Boolean).join(": ");

// After an action, answers that are polled are asked at once.
export const CHANGED = "tidemark:changed";
export const changed = () => dispatchEvent(new Event(CHANGED));

// Draws again when another time zone is picked, in this window or in another one.
export function useZone() {
  const [found, setFound] = useState(zone);
  useEffect(() => {
    const look = () => setFound(zone());
    const events = ["storage", "local-storage"];
    events.forEach((name) => addEventListener(name, look));
    return () => events.forEach((name) => removeEventListener(name, look));
  }, []);
  return found;
}

// The state of a request: {data, error, loading, again}. Polls after `every` ms while the page is visible; `every` may
// be a function of the answer, and 0 ends the polling. While the server has not read everything, it is asked to go on.
export function useAnswer(url, every) {
  useZone();
  const [state, setState] = useState({ loading: true });
  const [turn, setTurn] = useState(0);
  const key = url === null ? null : String(url);
  const pace = useRef(every);
  pace.current = every;
  const paced = typeof every === "function" ? "by answer" : every;
  useEffect(() => setState({ loading: key !== null }), [key]);
  useEffect(() => {
    if (key === null) return undefined;
    let gone = false;
    let timer;
    const asked = new URL(key);
    const go = async () => {
      const waits = (data) => (typeof pace.current === "function" ? pace.current(data) : pace.current);
      let wait = 0;
      try {
        const data = await ask(asked);
        if (!gone) setState({ data });
        wait = waits(data);
        if (data.indexed && data.indexed.read < data.indexed.of) {
          asked.searchParams.delete("more");
          wait = 200;
        }
      } catch (error) {
        // Not found and forbidden are final.
        wait = [403, 404, 422].includes(error.status) && typeof pace.current === "function" ? 0 : waits();
        if (!gone) setState((was) => ({ data: error.status ? undefined : was.data, error }));
      }
      if (!gone && wait) timer = setTimeout(looked, wait);
    };
    const looked = () => (document.hidden ? (timer = setTimeout(looked, 1000)) : go());
    go();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [key, paced, turn]);
  const again = useCallback(() => setTurn((n) => n + 1), []);
  // Answers that are read once on request, such as records, stay.
  useEffect(() => {
    if (!(every > 0)) return undefined;
    addEventListener(CHANGED, again);
    return () => removeEventListener(CHANGED, again);
  }, [every > 0]);
  return { ...state, again };
}

// `counted(1, "record")` is 1 record, `counted(2, "record")` 2 records.
export const counted = (n, noun, nouns = `${noun}s`) => `${count(n)} ${n === 1 ? noun : nouns}`;

export const count = (n) => (n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en-US"));

// The run that made a checkpoint. A transform and a patch have the checksum of their request instead, which is cut.
export const runOf = (origin) => String(origin).replace(/^((?:patch|transform) [0-9a-f]{12})[0-9a-f]{52}$/, "$1");

// Dead letters of a checkpoint; some manifests of 0.1 give an upper bound only.
export const letters = (c) => `${c.dead_letters_at_most ? "≤ " : ""}${count(c.dead_letters)}`;

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) {
    n /= 1024;
    at += 1;
  }
  return `${at === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[at]}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59950) return `${(ms / 1000).toFixed(1).replace(".0", "")} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return pair(seconds, 60, "min", "s");
  const minutes = Math.floor(seconds / 60);
  const hours = minutes < 48 * 60 && minutes !== 24 * 60;
  return hours ? pair(minutes, 60, "h", "min") : pair(Math.floor(minutes / 60), 24, "d", "h");
}

// Two units; the second one only if there is any of it.
function pair(number, size, large, small) {
  const [whole, rest] = [Math.floor(number / size), number % size];
  return rest ? `${whole} ${large} ${rest} ${small}` : `${whole} ${large}`;
}

export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share === 0) return "0 %";
  return share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

// A time, in ISO 8601 on hover.
export const Time = ({ at, ...more }) => h(C.Box, { as: "time", dateTime: iso(at), title: iso(at), ...more }, when(at));

// An untrusted name: cut if it is long, shown in full on hover, and isolated from the text direction around it.
export function Name({ children, most = "18rem", mono = false, ...more }) {
  const text = String(children ?? "");
  // Relative to the window: the cell of a table would grow with its content.
  const look = { display: "inline-block", maxW: `min(${most}, calc(100vw - 8rem))`, overflow: "hidden",
    textOverflow: "ellipsis", whiteSpace: "nowrap" };
  const font = mono ? { fontFamily: "mono" } : {};
  return h(C.Box, { as: "bdi", dir: "auto", title: text, verticalAlign: "bottom", ...look, ...font, ...more }, text);
}

export const Muted = ({ children, ...more }) => h(C.Text, { color: "fg.muted", fontSize: "sm", ...more }, children);

// A badge as Airflow draws its states, in darker shades: on Airflow's, white text has too little contrast.
export const Badge = ({ tone, sign, children, ...more }) => h(C.Badge, { bg: `${tone}.${tone === "gray" ? 600 : 700}`,
  color: "white", borderRadius: "full", px: 2, py: 0.5, variant: "solid", ...more }, sign && `${sign} `, children);

const TONES = {
  COMPLETED: ["green", "✓"],
  FAILED: ["red", "✕"],
  DAMAGED: ["red", "!"],
  IN_PROGRESS: ["blue", "…"],
};

export function Status({ status, discarded }) {
  const [tone, sign] = TONES[status] || ["gray", ""];
  const word = discarded ? "released" : status.toLowerCase().replace(/_/g, " ");
  return h(Badge, { tone: discarded ? "gray" : tone, sign }, word[0].toUpperCase() + word.slice(1));
}

// A checkbox as Airflow draws it.
export const Check = ({ checked, onChange, children, ...more }) => h(C.Checkbox.Root, { size: "sm", maxW: "100%",
  checked, onCheckedChange: (event) => onChange(event.checked === true), ...more },
  h(C.Checkbox.HiddenInput), h(C.Checkbox.Control), h(C.Checkbox.Label, null, children));

export function Panel({ title, children, aside, ...more }) {
  const head = title && h(C.Flex, { justify: "space-between", align: "center", mb: 2, gap: 2, wrap: "wrap" },
    h(C.Heading, { as: "h2", size: "sm", maxW: "100%", overflowWrap: "anywhere" }, title), aside);
  return h(C.Box, { as: "section", borderWidth: "1px", borderColor: "border", borderRadius: "md", p: 3, minW: 0,
    ...more },
    head, children);
}

export function Trouble({ error, again, children }) {
  const { text, command } = advice(error.next);
  const button = again && h(C.Button, { size: "xs", variant: "outline", onClick: again }, "Retry");
  const look = { borderLeftWidth: "4px", borderColor: "red.solid", bg: "bg.muted", p: 3, borderRadius: "sm" };
  return h(C.Box, { role: "alert", my: 2, ...look },
    h(C.Text, { fontWeight: "semibold", whiteSpace: "pre-wrap", overflowWrap: "anywhere" },
      inWords(error.what || error)),
    error.safe && h(Muted, null, `Safe: ${inWords(error.safe)}`),
    text && h(C.Text, { fontSize: "sm", overflowWrap: "anywhere" }, `Next: ${inWords(text)}`),
    (command || button) && h(C.Flex, { gap: 2, wrap: "wrap", mt: 2 }, command && h(Copy, { text: command }), button),
    children);
}

// A button that copies a command; the browser allows that only over https and on this host.
function Copy({ text }) {
  const [word, setWord] = useState("Copy the command");
  const copy = () => (navigator.clipboard ? navigator.clipboard.writeText(text) : Promise.reject(new Error()))
    .then(() => setWord("Copied"), () => setWord(text));
  return h(C.Button, { size: "xs", variant: "outline", title: text, onClick: copy,
    maxW: "100%", whiteSpace: "normal", h: "auto", overflowWrap: "anywhere" }, word);
}

export const Loading = ({ what }) => h(C.Flex, { role: "status", gap: 2, align: "center", p: 4, color: "fg.muted" },
  h(C.Spinner, { size: "sm" }), `Reading ${what} …`);

export const Empty = ({ title, children }) => h(C.Box, { p: 6, textAlign: "center", color: "fg.muted" },
  h(C.Text, { fontWeight: "semibold", color: "fg" }, title), h(C.Text, { fontSize: "sm", mt: 1 }, children));

// Whether a part of the page around this one says already that Airflow does not answer.
const Said = React.createContext(false);

// Shows the state of a request: loading, error, stale or data.
export function Answered({ answer, what, children }) {
  const said = React.useContext(Said);
  if (answer.error && answer.data === undefined) return h(Trouble, { error: answer.error, again: answer.again });
  if (answer.data === undefined) return h(Loading, { what });
  const away = Boolean(answer.error) && !answer.error.status;
  const stale = answer.error && !(away && said) && h(Trouble, { error: answer.error, again: answer.again });
  return h(Said.Provider, { value: said || away }, stale, children(answer.data));
}

export function Facts({ facts }) {
  const rows = Object.entries(facts).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(C.Box, { as: "dl", w: "100%", fontSize: "sm", display: "grid", rowGap: 1, columnGap: 3,
    gridTemplateColumns: "fit-content(40%) minmax(0, 1fr)" },
    rows.map(([name, value]) => h(React.Fragment, { key: name },
      h(C.Box, { as: "dt", color: "fg.muted", overflowWrap: "anywhere", maxW: "24rem" }, h("bdi", null, name)),
      h(C.Box, { as: "dd", overflowWrap: "anywhere", minW: 0 },
        React.isValidElement(value) ? value : h("bdi", null, shown(value))))));
}

export function shown(value) {
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en-US") : String(value);
  if (value !== null && typeof value === "object") return JSON.stringify(value);
  return String(value);
}

// A link inside Airflow: the router follows it without loading the page again.
export function Inside({ to, children, ...more }) {
  const { Link } = globalThis.ReactRouterDOM;
  return h(C.Link, { asChild: true, color: "fg.info", ...more }, h(Link, { to }, children));
}

// Airflow's tabs compare the address with their own, and encode no more than a path needs.
const bare = (text) => String(text).replace(/[%/?#]/g, encodeURIComponent);

export const dagRun = (dag, run) => `/dags/${bare(dag)}/runs/${bare(run)}`;
