// How the source is: counters of frames, the state of the bus, and how regular its cycle is.

import { bar, h, pairs, table } from "../dom.js";
import { age, listen, live } from "../live.js";

const COUNTS = {
  frames: "frames", dropped: "dropped", timeouts: "time-outs", lost_cycles: "lost cycles", overruns: "late cycles of the bus",
  recoveries: "recoveries", reconnects: "reconnections", unanswered_exchanges: "unanswered", stale_answers: "late answers",
  repeated_answers: "repeated answers", frames_filtered: "damaged frames left out", wkc_errors: "working counter errors", emergencies: "emergencies", mailbox_errors: "mailbox errors", clock_steps: "jumps of the clock",
  ring_overruns: "overruns of the ring", lost_blocks: "lost blocks", torn_reads: "torn reads", corrupt_samples: "corrupt samples",
  plc_restarts: "restarts of the PLC", online_changes: "changes of its program", exceeded_cycles: "cycles of the PLC too long",
  setpoints_refused: "set positions refused", setpoint_underruns: "set positions that ran out", clock_drift_ppm: "clock drift [ppm]",
};

const AT_WORK = ["operational", "running"]; // of EtherCAT, and of a PLC

const TIMES = [["p50_us", "median"], ["p99_us", "99 %"], ["p999_us", "99.9 %"], ["max_us", "longest"]];
const OLD_S = 3.0; // a rate so old is none

/** A duration of so many microseconds, to four digits. */
function duration(us) {
  const [value, text] = us < 1000 ? [us, "µs"] : us < 1e6 ? [us / 1e3, "ms"] : [us / 1e6, "s"];
  return `${Number(value.toPrecision(4))} ${text}`;
}

/** Counts of durations as a table with bars; long bars are drawn by their logarithm, for rare ones matter. */
function histogram(caption, found) {
  const [whole, body] = table(caption, [["up to"], ["count", "number"], ["share, logarithmic"]]);
  const most = Math.max(...found.counts, 1);
  found.counts.forEach((count, k) => {
    if (!count) return;
    const bound = k < found.bounds_us.length ? duration(found.bounds_us[k]) : `more (longest ${duration(Math.round(found.max_us))})`;
    const share = Math.log10(1 + count) / Math.log10(1 + most);
    body.append(h("tr", {}, h("th", { scope: "row" }, bound), h("td", { class: "number" }, count), h("td", {}, bar(share))));
  });
  return whole;
}

function driveRow(drive) {
  const good = drive.enabled || !drive.dropped_out;
  return h(
    "tr", {}, h("th", { scope: "row" }, drive.joint ?? drive.axis ?? ""), h("td", {}, drive.state ?? ""),
    h("td", {}, h("span", { class: good ? "good" : "bad" }, drive.enabled ? "● on" : drive.dropped_out ? "✕ dropped out" : "○ off")),
    h("td", { class: "number" }, drive.error_code ? `0x${drive.error_code.toString(16)}` : "–"),
  );
}

export function bus(place) {
  const health = h("div");
  const drives = h("div");
  const jitter = h("div");
  place.append(h("h2", {}, "Source"), health, drives, h("h2", {}, "Timing"), jitter);
  const show = () => {
    const found = live.sections.bus;
    if (!found) return;
    const { acquisition, estimator } = found;
    const source = acquisition.source ?? {};
    const counts = Object.entries(COUNTS).flatMap(([key, text]) => {
      const value = source[key] ?? acquisition[key];
      return typeof value === "number" ? [[text, Number.isInteger(value) ? value : value.toFixed(2)]] : [];
    });
    health.replaceChildren(
      pairs([
        ["state", acquisition.state ?? "–"],
        source.state && ["bus", `${AT_WORK.includes(source.state) ? "●" : "⚠"} ${source.state}`],
        source.problem && ["problem", `⚠ ${source.problem}`],
        source.axes_state && ["axes", `${source.axes_state}${source.axes_reason ? ` (${source.axes_reason})` : ""}`],
        source.enable_failure && ["drives", `✕ ${source.enable_failure}`],
        ["rate", found.rate_hz && age(found.at.acquisition) < OLD_S ? `${found.rate_hz.toFixed(1)} frames/s` : "–"],
        ...counts,
        ["lost on the way to the estimator", estimator.lost ?? "–"],
        ["unusable frames", estimator.unusable ?? "–"],
      ]),
    );
    drives.replaceChildren();
    if (source.drives?.length) {
      const [whole, body] = table("Drives", [["joint"], ["state"], ["on"], ["error", "number"]]);
      body.append(...source.drives.map(driveRow));
      drives.append(whole);
    }
    const { loop } = acquisition;
    const parts = [];
    if (loop) {
      const count = loop.period.counts.reduce((sum, each) => sum + each, 0);
      const mean = count ? loop.period.sum_us / count : 0;
      parts.push(
        h("p", {}, `The cycle is to take ${duration(loop.nominal_us)}. Mean ${duration(mean)}, longest ${duration(Math.round(loop.period.max_us))}, ${loop.overruns} turns too long, of ${count}.`),
        h("div", { class: "charts" }, histogram("Period of the loop (jitter)", loop.period), histogram("Work of one turn", loop.execution)),
      );
    } else parts.push(h("p", { class: "faint" }, "This source has no cycle to keep."));
    const timing = source.timing ?? {};
    if (Object.keys(timing).length) {
      const [whole, body] = table("The bus itself [µs]", [["of"], ...TIMES.map(([, label]) => [label, "number"])], { fold: true });
      for (const [name, each] of Object.entries(timing)) {
        const cells = TIMES.map(([key, label]) => h("td", { class: "number", "data-label": label }, each[key]?.toFixed(1) ?? "–"));
        body.append(h("tr", {}, h("th", { scope: "row" }, name.replace("_", " ")), cells));
      }
      parts.push(whole);
    }
    if (found.latency) parts.push(histogram("From a frame to the estimate that it renews", found.latency));
    jitter.replaceChildren(...parts);
  };
  show();
  return listen((changed) => changed.has("bus") && show());
}
