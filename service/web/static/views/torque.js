// Torque of each joint: measured, and predicted by the active model or the running estimate, with the residual beside it.

import { Chart, line } from "../chart.js";
import { choice, h, say, table } from "../dom.js";
import { number, unit } from "../format.js";
import { Past, spanChoice } from "../history.js";
import { listen, live } from "../live.js";

const DRAW_MS = 150;
const SPANS = [[15, "15 s"], [120, "2 min"], [3600, "1 h"]];

function difference(measured, predicted) {
  return measured === null || predicted === null ? null : measured - predicted;
}

export function torque(place) {
  const note = h("p", { class: "faint" });
  const pick = h("div", { class: "row" });
  const chartPlace = h("div", { class: "charts" });
  const [whole, body] = table("Torque now", [["joint"], ["measured", "number"], ["predicted", "number"], ["residual", "number"]]);
  place.append(note, pick, chartPlace, whole);
  let rows = [];
  let charts = [];
  const past = new Past();
  let span = SPANS[0][0];
  let joint = 0;
  let of = "";

  const drawn = () => {
    if (!charts.length) return;
    const { torques } = live.history;
    const names = [`measured.${joint}`, `predicted.${joint}`];
    const kept = past.get(names, span);
    const [x, measured, predicted] = torques.columns(
      2, (row) => [row.measured[joint], row.predicted[joint]], span, kept, (found, i) => names.map((name) => found[name][i]),
    );
    charts[0].show([x, measured, predicted]);
    charts[1].show([x, measured.map((value, k) => difference(value, predicted[k]))]);
  };
  const draw = () => {
    charts.forEach((each) => each.end());
    const { joints, torque_units: units } = live.facts;
    const axes = ["s before the newest value", unit(units[joint])];
    charts = [
      new Chart(`Torque of ${joints[joint]}`, ...axes, [{ label: "measured", ...line(0) }, { label: "predicted", ...line(1) }]),
      new Chart(`Residual of ${joints[joint]}: measured less predicted`, ...axes, [{ label: "residual", ...line(2) }]),
    ];
    chartPlace.replaceChildren(...charts.map((each) => each.element));
    drawn();
  };
  const build = () => {
    const { joints } = live.facts;
    joint = Math.min(joint, joints.length - 1);
    pick.replaceChildren(h("label", {}, "Joint", choice("joint", joints.map((name, k) => [String(k), name]), String(joint), (value) => {
      joint = Number(value);
      draw();
    })), spanChoice(SPANS, span, (value) => {
      span = value;
      drawn();
    }));
    draw();
    rows = joints.map((name) => {
      const cells = [0, 1, 2].map(() => h("td", { class: "number" }));
      return { cells, row: h("tr", {}, h("th", { scope: "row" }, name), cells) };
    });
    body.replaceChildren(...rows.map((each) => each.row));
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
      const residual = difference(measured, predicted);
      say(cells[2], residual === null ? "–" : `${number(residual, 3)} ${text}`);
    });
  };
  show();
  const timer = setInterval(drawn, DRAW_MS);
  const end = listen((changed) => ["torque", "facts"].some((name) => changed.has(name)) && show());
  return () => {
    clearInterval(timer);
    end();
    charts.forEach((each) => each.end());
  };
}
