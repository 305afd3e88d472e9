// Times in the zone of Airflow's picker: one format everywhere, short forms for charts, and the ticks of a time axis.

// Airflow keeps the choice as JSON; without one it takes the zone of the browser, and so do these pages.
export function zone() {
  let chosen = null;
  try {
    chosen = JSON.parse(localStorage.getItem("timezone"));
  } catch { /* another value, or no storage */ }
  return typeof chosen === "string" && partsOf(chosen) ? chosen : Intl.DateTimeFormat().resolvedOptions().timeZone;
}

const FIELDS = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
  second: "2-digit" };
const known = new Map();

function partsOf(name) {
  if (!known.has(name)) {
    try {
      known.set(name, new Intl.DateTimeFormat("en-CA", { ...FIELDS, hourCycle: "h23", timeZone: name }));
    } catch {
      known.set(name, null);
    }
  }
  return known.get(name);
}

// The city of a zone; UTC for UTC.
export const zoneName = () => (/^(Etc\/)?(UTC|UCT|Zulu|GMT)$/.test(zone()) ? "UTC"
  : zone().split("/").pop().replace(/_/g, " "));

// The title of a column of times.
export const inZone = (title) => `${title} (${zoneName()})`;

// A time with its zone, for a sentence.
export function inFull(at) {
  return isTime(dated(at)) ? `${when(at)} ${zoneName()}` : when(at);
}

const dated = (at) => (at === null || at === undefined || at === "" ? null : new Date(at));
const isTime = (date) => date !== null && !Number.isNaN(date.getTime());

function fieldsOf(date) {
  const found = {};
  for (const { type, value } of partsOf(zone()).formatToParts(date)) found[type] = value;
  return found;
}

export function when(at) {
  const date = dated(at);
  if (date === null) return "–";
  if (!isTime(date)) return String(at);
  const { year, month, day, hour, minute, second } = fieldsOf(date);
  return `${year}-${month}-${day} ${hour}:${minute}:${second}`;
}

export const day = (at) => when(at).slice(0, 10);

export const iso = (at) => (isTime(dated(at)) ? dated(at).toISOString().replace(".000Z", "Z") : undefined);

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// A near time without parts that are clear: 14:00 today, 3 Dec 14:00 this year, else the date.
export function soon(at, now = Date.now()) {
  const [text, today] = [when(at), when(now)];
  if (!/^\d{4}-/.test(text)) return text;
  if (text.slice(0, 10) === today.slice(0, 10)) return text.slice(11, 16);
  const date = `${Number(text.slice(8, 10))} ${MONTHS[Number(text.slice(5, 7)) - 1]}`;
  return text.slice(0, 4) === today.slice(0, 4) ? `${date} ${text.slice(11, 16)}` : text.slice(0, 16);
}

// What a clock on the wall shows, as milliseconds; and the time at which it shows that.
function wallOf(ms) {
  const { year, month, day: date, hour, minute, second } = fieldsOf(new Date(ms));
  return Date.UTC(year, month - 1, date, hour, minute, second);
}

function fromWall(wall) {
  const near = wall - (wallOf(wall) - Math.floor(wall / 1000) * 1000);
  return wall - (wallOf(near) - Math.floor(near / 1000) * 1000);
}

const [SECOND, MINUTE, HOUR, DAY, MONTH] = [1000, 60000, 3600000, 86400000, 30 * 86400000];
const STEPS = [1, 2, 5, 10, 15, 30].map((n) => n * SECOND).concat([1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  [1, 2, 3, 6, 12].map((n) => n * HOUR), [1, 2, 4, 7, 14].map((n) => n * DAY));
const MONTH_STEPS = [1, 2, 3, 6, 12, 24, 60, 120, 600];

// Ticks between two times, `most` of them at most: {at, label}. They are at whole hours, days and months of the zone.
export function timeTicks(begin, end, most) {
  const step = STEPS.find((one) => (end - begin) / one <= most);
  return step === undefined ? monthTicks(begin, end, most) : clockTicks(begin, end, step);
}

function clockTicks(begin, end, step) {
  const found = [];
  for (let wall = Math.ceil(wallOf(begin) / step) * step; found.length < 100; wall += step) {
    const at = fromWall(wall);
    if (at > end) break;
    // The clock skips a time when summer begins.
    if (at < begin || wallOf(at) !== wall) continue;
    const text = new Date(wall).toISOString();
    const date = `${Number(text.slice(8, 10))} ${MONTHS[Number(text.slice(5, 7)) - 1]}`;
    const time = step < MINUTE ? text.slice(11, 19) : text.slice(11, 16);
    found.push({ at, label: step >= DAY || wall % DAY === 0 ? date : time });
  }
  return found;
}

function monthTicks(begin, end, most) {
  const step = MONTH_STEPS.find((one) => (end - begin) / (one * MONTH) <= most) || MONTH_STEPS[MONTH_STEPS.length - 1];
  const first = new Date(wallOf(begin));
  let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / step) * step;
  const found = [];
  for (; found.length < 100; month += step) {
    const [year, of] = [Math.floor(month / 12), month % 12];
    const at = fromWall(Date.UTC(year, of, 1));
    if (at > end) break;
    if (at >= begin) found.push({ at, label: step % 12 === 0 ? String(year) : `${MONTHS[of]} ${year}` });
  }
  return found;
}

// Errors of the command line have times in ISO 8601; a name of a run that contains one stays.
const MOMENT = /(?<=^|\s)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)(?=[\s,;:)]|\.?$)/g;
export const inWords = (text) => String(text).replace(MOMENT, inFull);
