// The fields of a JSON object as they are written: numbers keep all their digits, texts their escapes.

// data: {text, encoding, cut}. Returns [[name, text of the value], …], or null for anything but a whole object.
export function fieldsOf(data) {
  if (!data || data.cut || data.encoding !== "utf-8" || !/^\s*\{/.test(data.text)) return null;
  try {
    JSON.parse(data.text);
  } catch {
    return null;
  }
  const found = parts(data.text.trim().slice(1, -1), ",").map((part) => {
    const [name, ...rest] = parts(part, ":");
    return [name.trim().slice(1, -1), rest.join(":").trim()];
  });
  return found.length === 1 && found[0][0] === "" && found[0][1] === "" ? [] : found;
}

// Splits at a sign outside of texts, objects and arrays.
function parts(text, sign) {
  const found = [];
  let [depth, quoted, from] = [0, false, 0];
  for (let at = 0; at < text.length; at += 1) {
    const here = text[at];
    if (quoted) {
      if (here === "\\") at += 1;
      else if (here === "\"") quoted = false;
    } else if (here === "\"") quoted = true;
    else if (here === "{" || here === "[") depth += 1;
    else if (here === "}" || here === "]") depth -= 1;
    else if (here === sign && depth === 0) {
      found.push(text.slice(from, at));
      from = at + 1;
    }
  }
  return [...found, text.slice(from)];
}
