// Colours and textures of pictures: seven hues that Okabe and Ito chose for all kinds of colour vision, in four textures.

export const HUES = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442"];
/** The number of a job's look, from its id alone: the same as `web.fabric.style.look_of`, CRC-32. */
export function lookOf(job) {
  let crc = -1;
  for (const byte of new TextEncoder().encode(job)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return (~crc >>> 0) % (HUES.length * 4);
}

export const useSteps = ["use-0", "use-1", "use-2", "use-3"];
const NAMES = ["page", "box", "text", "line", "mark", "bad", "warn", "deep", "free", "free-line", "taken", "held",
  "state-ready", "state-worn", "state-cordoned", "state-draining", "state-drained", "state-lost", "state-broken"];

/** The colours of the style sheet as they are now, in light or dark. */
export function colours(steps) {
  const probe = document.createElement("span");
  document.body.append(probe);
  const read = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const found = Object.fromEntries(NAMES.map((name) => [name, read(name)]));
  found.steps = steps.map(read);
  probe.remove();
  made.clear();
  return found;
}

/** Black or white, whichever has more contrast on a colour of the style sheet: of luminance 0.18 on it is black. */
export function readableOn(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g).map((part) => { const c = part / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000" : "#fff";
}

const made = new Map();
const SIZE = 8;

/** A fill by look and kind: "job" a hue with its texture, "reserved" its outline, "site" dots, "stripes", "hatch". */
export function pattern(pen, look, kind, ink) {
  const key = `${kind} ${look}`;
  let tile = made.get(key);
  if (!tile) {
    tile = document.createElement("canvas");
    tile.width = tile.height = SIZE;
    TILES[kind](tile.getContext("2d"), look, ink);
    made.set(key, tile);
  }
  return pen.createPattern(tile, "repeat");
}

const TILES = {
  job(own, look) {
    own.fillStyle = HUES[look % HUES.length];
    own.fillRect(0, 0, SIZE, SIZE);
    [() => {}, () => lines(own, "rgb(255 255 255 / .75)", 1), () => bars(own, "rgb(0 0 0 / .6)", 2, 0), () => bars(own, "rgb(255 255 255 / .8)", 0, 2)][
      Math.floor(look / HUES.length) % 4]();
  },
  reserved(own, look, ink) {
    own.fillStyle = ink.free;
    own.fillRect(0, 0, SIZE, SIZE);
    lines(own, HUES[look % HUES.length], 2.5);
  },
  site(own, look, ink) {
    own.fillStyle = ink.taken;
    own.fillRect(0, 0, SIZE, SIZE);
    own.fillStyle = ink.free;
    own.fillRect(1, 1, 2, 2);
    own.fillRect(5, 5, 2, 2);
  },
  stripes(own, look, ink) { lines(own, ink.bad, 1); },
  hatch(own, look, ink) {
    lines(own, ink.bad, 1);
    own.setTransform(-1, 0, 0, 1, SIZE, 0);
    lines(own, ink.bad, 1);
  },
};

function lines(own, colour, width) {
  own.strokeStyle = colour;
  own.lineWidth = width;
  own.beginPath();
  for (const at of [-SIZE, 0, SIZE]) { own.moveTo(at - 1, SIZE + 1); own.lineTo(at + SIZE + 1, -1); }
  own.stroke();
}

function bars(own, colour, x, y) {
  own.fillStyle = colour;
  if (x) { own.fillRect(1, 0, x, SIZE); own.fillRect(5, 0, x, SIZE); }
  if (y) { own.fillRect(0, 1, SIZE, y); own.fillRect(0, 5, SIZE, y); }
}
