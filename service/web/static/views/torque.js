// Torque of each joint: measured, and predicted by the active model or the running estimate.

import { Chart, line } from "../chart.js";
import { choice, h, say, table } from "../dom.js";
import { number, unit } from "../format.js";
import { listen, live } from "../live.js";

const DRAW_MS = 150;
const SPAN_S = 15;

export function torque(place) {
  const note = h("p", { class: "faint" });
  const chartPlace = h("div");
  const [whole, body] = table("Torque now", [["joint"], ["measured", "number"], ["predicted", "number"], ["residual", "number"]]);
  place.append(note, chartPlace, whole);
  let rows = [];
  let chart = null;
  let joint = 0;
  let of = "";

  const drawn = () => chart?.show(live.history.columns("torques", 2, (row) => [row.measured[joint], row.predicted[joint]], SPAN_S));
  const build = () => {
    chart?.end();
    const { joints, torque_units: units } = live.facts;
    joint = Math.min(joint, joints.length - 1);
    chart = new Chart(`Torque of ${joints[joint]}`, "s before the newest value", unit(units[joint]), [
      { label: "measured", ...line(0) }, { label: "predicted", ...line(1) },
    ]);
    const pick = choice("joint", joints.map((name, k) => [String(k), name]), String(joint), (value) => {
      joint = Number(value);
      build();
    });
    chartPlace.replaceChildren(h("label", {}, "Joint", pick), chart.element);
    rows = joints.map((name) => {
      const cells = [0, 1, 2].map(() => h("td", { class: "number" }));
      return { cells, row: h("tr", {}, h("th", { scope: "row" }, name), cells) };
    });
    body.replaceChildren(...rows.map((each) => each.row));
    drawn();
  };
  const show = () => {
    const found = live.sections.torque;
    if (!live.facts) return;
    if (of !== live.facts.hash) {
      of = live.facts.hash;
      build();
    }
    const model = live.fleet?.arms.find((arm) => arm.name === live.arm)?.model;
    say(note, `Predicted by ${model ? `the active model ${model.slice(0, 12)}` : "the running estimate"}, both low-pass filtered. ${found ? "" : "No torque has come yet."}`);
    if (!found) return;
    rows.forEach(({ cells }, j) => {
      const text = unit(live.facts.torque_units[j]);
      const [measured, predicted] = [found.measured[j], found.predicted[j]];
      say(cells[0], `${number(measured)} ${text}`);
      say(cells[1], `${number(predicted)} ${text}`);
      say(cells[2], measured === null || predicted === null ? "–" : `${number(measured - predicted, 3)} ${text}`);
    });
  };
  show();
  const timer = setInterval(drawn, DRAW_MS);
  const end = listen((changed) => ["torque", "facts"].some((name) => changed.has(name)) && show());
  return () => {
    clearInterval(timer);
    end();
    chart?.end();
  };
}
