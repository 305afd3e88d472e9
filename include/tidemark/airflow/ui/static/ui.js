// Texts, numbers and small components that all views share. Names are untrusted: they are rendered as text only.

export const React = globalThis.React;
export const h = React.createElement;
export const C = globalThis.ChakraUI;
export const { useCallback, useEffect, useMemo, useRef, useState } = React;

export const color = (name) => `var(--chakra-colors-${name.replace(/\./g, "-")})`;

// Paths are relative to Airflow's base, which a proxy may move into a folder.
const base = () => new URL(".", document.baseURI);
const path = (parts) => parts.map(encodeURIComponent).join("/");

export const ours = (parts, query) => address("tidemark/", parts, query);
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
    throw { what: "Airflow does not answer", next: "Look whether the API server is up; the page asks again." };
  }
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw refused(answer.status, data);
  return data;
}

function refused(status, data) {
  if (data.what) return { status, what: data.what, safe: data.safe, next: data.next };
  if (status === 401) return { status, what: "You are not logged in any more",
    next: "Load the page again to log in." };
  if (status === 403) return { status, what: "You may not see or do this",
    next: "Ask for access to the pipeline's DAG." };
  const detail = typeof data.detail === "string" ? data.detail : JSON.stringify(data.detail || status);
  return { status, what: `Airflow refused: ${detail}`, next: "" };
}

// The state of a request: {data, error, loading, again}. Polls after `every` ms while the page is visible; `every` may
// be a function of the answer, and 0 ends the polling.
export function useAnswer(url, every) {
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
    const go = async () => {
      const waits = (data) => (typeof pace.current === "function" ? pace.current(data) : pace.current);
      let wait = 0;
      try {
        const data = await ask(key);
        if (!gone) setState({ data });
        wait = waits(data);
        if (data.indexed && data.indexed.read < data.indexed.of) wait = 200;
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
  return { ...state, again };
}

export const count = (n) => (n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en-US"));

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
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function when(at) {
  if (at === null || at === undefined || at === "") return "–";
  const found = new Date(at);
  return Number.isNaN(found.getTime()) ? String(at) : found.toISOString().replace("T", " ").slice(0, 19);
}

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

const TONES = {
  COMPLETED: ["green", "✓"],
  FAILED: ["red", "✕"],
  DAMAGED: ["red", "!"],
  IN_PROGRESS: ["blue", "…"],
};

export function Status({ status, discarded }) {
  const [tone, sign] = TONES[status] || ["gray", ""];
  const word = discarded ? "released" : status.toLowerCase().replace(/_/g, " ");
  return h(C.Badge, { colorPalette: discarded ? "gray" : tone, variant: "subtle" }, `${sign} ${word}`);
}

export function Panel({ title, children, aside, ...more }) {
  const head = title && h(C.Flex, { justify: "space-between", align: "center", mb: 2, gap: 2, wrap: "wrap" },
    h(C.Heading, { as: "h2", size: "sm", maxW: "100%", overflowWrap: "anywhere" }, title), aside);
  return h(C.Box, { as: "section", borderWidth: "1px", borderColor: "border", borderRadius: "md", p: 3, minW: 0,
    ...more },
    head, children);
}

export function Trouble({ error, again }) {
  const button = again && h(C.Button, { size: "xs", variant: "outline", onClick: again, mt: 2 }, "Ask again");
  const look = { borderLeftWidth: "4px", borderColor: "red.solid", bg: "bg.muted", p: 3, borderRadius: "sm" };
  return h(C.Box, { role: "alert", my: 2, ...look },
    h(C.Text, { fontWeight: "semibold", whiteSpace: "pre-wrap", overflowWrap: "anywhere" },
      error.what || String(error)),
    error.safe && h(Muted, null, `Safe: ${error.safe}`),
    error.next && h(C.Text, { fontSize: "sm", overflowWrap: "anywhere" }, `Next: ${error.next}`),
    button);
}

export const Loading = ({ what }) => h(C.Flex, { role: "status", gap: 2, align: "center", p: 4, color: "fg.muted" },
  h(C.Spinner, { size: "sm" }), `Reading ${what} …`);

export const Empty = ({ title, children }) => h(C.Box, { p: 6, textAlign: "center", color: "fg.muted" },
  h(C.Text, { fontWeight: "semibold", color: "fg" }, title), h(C.Text, { fontSize: "sm", mt: 1 }, children));

// Shows the state of a request: loading, error, stale or data.
export function Answered({ answer, what, children }) {
  if (answer.error && answer.data === undefined) return h(Trouble, { error: answer.error, again: answer.again });
  if (answer.data === undefined) return h(Loading, { what });
  const stale = answer.error && h(Trouble, { error: answer.error, again: answer.again });
  return h(React.Fragment, null, stale, children(answer.data));
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

export const dagRun = (dag, run) => `/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`;
