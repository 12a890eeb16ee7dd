// Numbers, times and states as people read them.

export const Z_95 = 1.959964; // half width of a 95 % interval in standard deviations

const UNITS = { "N*m": "N·m" };

/** A unit with dots and powers. */
export function unit(text) {
  return (UNITS[text] ?? text).replaceAll("*", "·").replaceAll("^2", "²").replaceAll("^3", "³");
}

/** A number of so many digits; a dash where there is none. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4)) return value.toExponential(Math.min(digits - 1, 2));
  return value.toPrecision(digits).replace("e+", "e");
}

/** A value with its band, both to the same place: 12.345 ± 0.012. */
export function banded(value, half) {
  if (value === null || value === undefined) return "";
  if (!(half > 0) || !Number.isFinite(half)) return `${number(value)} ± ?`;
  const places = Math.max(0, 1 - Math.floor(Math.log10(half)));
  if (places > 9) return `${value.toExponential(3)} ± ${half.toExponential(1)}`;
  return `${value.toFixed(places)} ± ${half.toFixed(places)}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.9995) return `${Math.max(0, value * 1e3).toFixed(0)} ms`;
  if (value < 120) return `${value.toFixed(1)} s`;
  if (value < 7200) return `${(value / 60).toFixed(0)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function bytes(value) {
  return value < 1e6 ? `${(value / 1e3).toFixed(0)} kB` : value < 1e9 ? `${(value / 1e6).toFixed(1)} MB` : `${(value / 1e9).toFixed(2)} GB`;
}

export function clock(date) {
  return date.toLocaleTimeString([], { hour12: false });
}

export function when(text) {
  return text ? new Date(text).toLocaleString([], { hour12: false }) : "";
}

// By word: what it means, as a sign, a text and a tone.
const PARAMETER = {
  estimated: ["●", "estimated", "good"],
  stale: ["◐", "stale: not seen for long", "warn"],
  frozen: ["❄", "frozen: the arm stands still", "warn"],
  unheard: ["…", "no estimate heard yet", "faint"],
  unestimated: ["○", "not determined by the data", "faint"],
  invalid: ["✕", "the model does not explain the torque", "bad"],
  doubted: ["?", "doubted: see what speaks against it", "bad"],
  starved: ["∅", "no frame can be learned from", "bad"],
};
const JOB = {
  queued: ["○", "queued", "faint"],
  running: ["▶", "running", "good"],
  succeeded: ["✓", "succeeded", "good"],
  failed: ["✕", "failed", "bad"],
  cancelled: ["–", "cancelled", "faint"],
};

export function parameterStatus(word) {
  return PARAMETER[word] ?? ["?", word, "warn"];
}

export function jobStatus(word) {
  return JOB[word] ?? ["?", word, "warn"];
}
