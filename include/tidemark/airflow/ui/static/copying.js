// Copies a text, or saves texts as a file.

import { C, h, useEffect, useState } from "./ui.js";

export function Copy({ text, what, label = "Copy" }) {
  const [done, setDone] = useState("");
  useEffect(() => {
    const timer = done && setTimeout(() => setDone(""), 2000);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = () => put(text()).then(() => setDone("Copied"), () => setDone("Not copied"));
  return h(C.Button, { type: "button", size: "2xs", variant: "outline", onClick: copy,
    "aria-label": done || `${label} ${what}` },
    done || label);
}

// The clipboard's own interface needs HTTPS or localhost.
async function put(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("the browser refused");
  return undefined;
}

export function save(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
