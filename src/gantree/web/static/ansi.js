// Text with terminal escapes as elements: colours and weights (SGR) only; every other escape and control is left out.
// Nothing is ever parsed as HTML.

const SGR = /^\x1b\[([0-9;:]*)m$/;
const ESCAPE = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f]/g;
const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "struck" };
const PLAIN = Object.freeze({});

/** The elements of a text that begins in a style; gives them and the style in which it ends. */
export function ansiText(text, style = PLAIN) {
  const made = document.createDocumentFragment();
  let place = 0;
  for (const found of text.matchAll(ESCAPE)) {
    put(made, text.slice(place, found.index), style);
    place = found.index + found[0].length;
    const codes = SGR.exec(found[0]);
    if (codes) style = styled(style, codes[1]);
  }
  put(made, text.slice(place), style);
  return [made, style];
}

function put(made, text, style) {
  if (!text) return;
  const classes = Object.values(FLAGS).filter((name) => style[name]);
  for (const [side, colour] of [["fg", style.fg], ["bg", style.bg]]) if (Number.isInteger(colour)) classes.push(`${side}${colour % 8}`);
  const free = [["color", style.fg], ["background-color", style.bg]].filter(([, colour]) => Array.isArray(colour));
  if (!classes.length && !free.length) { made.append(text); return; }
  const span = document.createElement("span");
  span.className = classes.join(" ");
  // half of it is the text's own colour or the ground, so that it stays readable in both schemes
  for (const [property, rgb] of free) {
    span.style.setProperty(property, `color-mix(in srgb, rgb(${rgb.join(" ")}) 50%, ${property === "color" ? "var(--text)" : "var(--page)"})`);
  }
  span.append(text);
  made.append(span);
}

function styled(style, text) {
  const codes = text.split(/[;:]/).map(Number);
  let now = { ...style };
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i];
    if (code === 0) now = {};
    else if (FLAGS[code]) now[FLAGS[code]] = true;
    else if (code === 22) now.bold = now.dim = false;
    else if (FLAGS[code - 20]) now[FLAGS[code - 20]] = false;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes.slice(i + 1));
      now[code === 38 ? "fg" : "bg"] = colour;
      i += used;
    } else if (code === 39) delete now.fg;
    else if (code === 49) delete now.bg;
    else if ((code >= 30 && code < 38) || (code >= 90 && code < 98)) now.fg = code % 10;
    else if ((code >= 40 && code < 48) || (code >= 100 && code < 108)) now.bg = code % 10;
  }
  return now;
}

/** A colour of 256 or a true one, and how many codes it takes. */
function extended([kind, a, b, c]) {
  const inRange = (value) => Number.isInteger(value) && value >= 0 && value < 256;
  if (kind === 2) return [[a, b, c].every(inRange) ? [a, b, c] : undefined, 4];
  if (kind !== 5 || !inRange(a)) return [undefined, kind === 5 ? 2 : 1];
  if (a < 16) return [a % 8, 2];
  if (a >= 232) return [Array(3).fill(8 + 10 * (a - 232)), 2];
  const step = (value) => (value ? 55 + 40 * value : 0);
  return [[Math.floor((a - 16) / 36), Math.floor((a - 16) / 6) % 6, (a - 16) % 6].map(step), 2];
}

/** What a terminal would show of a line in which carriage returns overwrite. */
export function overwritten(line) {
  const text = line.replace(/\r+$/, "");
  return text.slice(text.lastIndexOf("\r") + 1);
}
