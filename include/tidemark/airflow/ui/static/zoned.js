// Times as Airflow's time zone picker has them: it keeps the name of the zone in the browser.

export function hostZone() {
  let kept = null;
  try {
    kept = JSON.parse(localStorage.getItem("timezone"));
  } catch {
    kept = localStorage.getItem("timezone");
  }
  const name = kept === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : kept || "UTC";
  try {
    new Intl.DateTimeFormat("sv-SE", { timeZone: name });
    return name;
  } catch {
    return "UTC";
  }
}

// 2013-06-30T20:00: what a clock on the wall shows, for an input of the type datetime-local.
export const wallTime = (at, zone) => new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short",
  timeStyle: "medium" }).format(at).replace(" ", "T").slice(0, 16);

// The moment at which a clock on the wall shows that, in ISO 8601; null if it is no time.
export function momentOf(wall, zone) {
  const wanted = Date.parse(`${wall}Z`);
  if (Number.isNaN(wanted)) return null;
  let at = wanted;
  // The offset of the zone is that of the moment itself, so the second look corrects the first.
  for (let look = 0; look < 2; look += 1) at += wanted - Date.parse(`${wallTime(at, zone)}Z`);
  return new Date(at).toISOString();
}
