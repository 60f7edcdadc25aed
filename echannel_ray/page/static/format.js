// Numbers as people read them; "–" is unknown.

const UNKNOWN = "–";
const isUnknown = (value) => value === null || value === undefined;

/** Digits enough to compare by: 3 or so. */
function short(value) {
  if (value >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}

function scaled(value, step, units) {
  let unit = 0;
  while (value >= step * 0.9995 && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return `${short(value)}${units[unit] && ` ${units[unit]}`}`;
}

/** 1,234,567 */
export const count = (value) => (isUnknown(value) ? UNKNOWN : value.toLocaleString("en"));
/** 12.3 k */
export const brief = (value) => (isUnknown(value) ? UNKNOWN : scaled(value, 1000, ["", "k", "M", "G"]));
/** 12.3 k/s */
export const rate = (value) => (isUnknown(value) ? UNKNOWN : `${brief(value)}/s`);
/** 12.3 MB */
export const bytes = (value) => (isUnknown(value) ? UNKNOWN : scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]));
/** 12 % */
export const percent = (value) => (isUnknown(value) ? UNKNOWN : `${Math.round(value * 100)} %`);

/** 250 µs, 1.2 ms, 3 s */
export function seconds(value) {
  if (isUnknown(value)) return UNKNOWN;
  if (value < 1) return scaled(value * 1e6, 1000, ["µs", "ms"]);
  return value < 90 ? `${short(value)} s` : `${short(value / 60)} min`;
}

/** 1 channel, 2 channels, 2 processes */
export function counted(number, what, plural = "s") {
  return `${count(number)} ${what}${number === 1 ? "" : plural}`;
}

/** The first digits of a node's id. */
export const node = (id) => (id ? id.slice(0, 8) : UNKNOWN);

/** How a channel may be, the worst first: each has a sign and a word besides its colour. */
export const LEVELS = {
  blocked: { sign: "■", word: "blocked", why: "producers wait for a consumer" },
  dropping: { sign: "▼", word: "dropping", why: "events are dropped" },
  failing: { sign: "✖", word: "failing", why: "handlers raise" },
  behind: { sign: "◆", word: "behind", why: "consumers are more than a second of events behind" },
  flowing: { sign: "●", word: "flowing", why: "events flow" },
  idle: { sign: "○", word: "idle", why: "nothing is published" },
};
export const ORDER = Object.keys(LEVELS);

/** ■ blocked */
export const level = (name) => `${LEVELS[name].sign} ${LEVELS[name].word}`;
