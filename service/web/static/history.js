// What has been seen of an arm, for charts over time: as long as the page shows it, no longer.

const MOST = 2400; // two minutes at twenty a second
const GAP_S = 1.0; // a longer pause of the daemon's clock is drawn as one; a source may be replayed at any speed

export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.estimates = [];
    this.torques = [];
  }

  add(kind, row) {
    const rows = this[kind];
    const last = rows.at(-1);
    if (last && row.t < last.t) rows.length = 0; // the source has begun anew, and so has its clock
    else if (last && row.t === last.t) return;
    if (rows.length && row.at - last.at > GAP_S) rows.push({ t: (last.t + row.t) / 2, gap: true });
    rows.push(row);
    if (rows.length > MOST) rows.splice(0, rows.length - MOST);
  }

  /** Columns for a chart: seconds before the newest value, and what `values` gives of each row. */
  columns(kind, count, values, span) {
    const rows = this[kind];
    const now = rows.at(-1)?.t ?? 0;
    const found = Array.from({ length: count + 1 }, () => []);
    for (const row of rows) {
      if (now - row.t > span) continue;
      found[0].push(row.t - now);
      const given = row.gap ? [] : values(row);
      for (let k = 0; k < count; k += 1) found[k + 1].push(given[k] ?? null);
    }
    return found;
  }
}
