// What has been seen of an arm, for charts over time: two minutes of what the page has got, and before them what the
// daemon has kept.

import { get } from "./api.js";
import { h, choice } from "./dom.js";
import { live } from "./live.js";

export const MINUTES_S = 120; // that the page keeps; what is longer needs the daemon's history again and again
const MOST = 2400; // rows: two minutes at twenty a second
const GAP_S = 1.0; // a longer pause is drawn as one
const PAST_GAP_S = 2.5; // of values that are kept once a second
const RENEWED_MS = 5000;
const AGAIN_MS = 60_000;

/** Rows of one section, each with `t` of the source and `at` of the daemon's clock [s]. */
export class Series {
  constructor() {
    this.rows = [];
  }

  add(row) {
    const { rows } = this;
    const last = rows.at(-1);
    if (last && row.t < last.t) rows.length = 0; // the source has begun anew, and so has its clock
    else if (last && row.t === last.t) return;
    rows.push(row);
    if (rows.length > MOST) rows.splice(0, rows.length - MOST);
  }

  /**
   * Columns for a chart: seconds before the newest row, and what `values` gives of each row.  Before the first row are
   * those of `past`, what `before` gives of each place in it.
   */
  columns(count, values, span, past = null, before = null) {
    const found = Array.from({ length: count + 1 }, () => []);
    const push = (x, given) => {
      found[0].push(x);
      for (let k = 0; k < count; k += 1) found[k + 1].push(given[k] ?? null);
    };
    let last = null;
    const put = (x, at, given, gap) => {
      if (x < -span) return;
      if (last !== null && at - last.at > gap) push((last.x + x) / 2, []);
      push(x, given());
      last = { x, at };
    };
    // The page's rows are placed by the source's clock, which a replay may have at any speed; what was before them by
    // the daemon's.
    const now = this.rows.at(-1);
    const first = this.rows[0] ?? { at: Infinity, t: 0 };
    const joined = now ? { at: first.at, x: first.t - now.t } : { at: past?.at.at(-1) ?? 0, x: 0 };
    past?.at.forEach((at, i) => at < first.at && put(joined.x + at - joined.at, at, () => before(past, i), PAST_GAP_S));
    for (const row of this.rows) put(row.t - now.t, row.at, () => values(row), GAP_S);
    return found;
  }
}

/** The series of an arm. */
export class History {
  constructor() {
    this.clear();
  }

  clear() {
    Object.assign(this, { estimates: new Series(), torques: new Series(), signals: new Series() });
  }
}

/** What the daemon has kept of some columns, asked for when it is wanted; null until then. */
export class Past {
  constructor() {
    this.of = "";
    this.values = null;
  }

  /** The columns of these names, renewed for a span that the page does not keep. */
  get(names, span) {
    const of = `/api/arms/${encodeURIComponent(live.arm)}/history?of=${names}`;
    if (of !== this.of) Object.assign(this, { of, values: null, dueMs: 0 });
    if (live.connected && names.length && performance.now() >= this.dueMs) {
      this.dueMs = performance.now() + (span > MINUTES_S ? RENEWED_MS : AGAIN_MS);
      const take = (found) => {
        if (of === this.of) this.values = found;
      };
      get(of).then(take, () => {}); // without it charts begin with the page
    }
    return this.values;
  }
}

/** A choice of the time that charts show, [seconds, text]. */
export function spanChoice(spans, chosen, onchange) {
  const values = spans.map(([seconds, text]) => [String(seconds), text]);
  return h("label", {}, "Time", choice("span", values, String(chosen), (value) => onchange(Number(value))));
}
