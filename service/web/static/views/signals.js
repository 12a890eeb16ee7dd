// What the frames of an arm carry, of each joint: a table, a chart of up to four of them, and the arm in its pose.

import { Chart, line } from "../chart.js";
import { choice, h, mark, say, table } from "../dom.js";
import { Past, spanChoice } from "../history.js";
import { listen, live, priorKeeper } from "../live.js";
import { Pose } from "../pose.js";

const DRAW_MS = 150;
const ASK_MS = 3000;
const SPANS = [[15, "15 s"], [120, "2 min"], [3600, "1 h"]];
const MOST = 4; // signals in the chart
const DEGREES = 180 / Math.PI;
const KEY = "thetad-angle";

// By channel: its name, the power of time in its unit, and whether it is an angle of a revolute joint.
const CHANNELS = {
  q: { name: "position", unit: "", angle: true }, dq: { name: "velocity", unit: "/s", angle: true },
  setpoint: { name: "set point", unit: "", angle: true }, q_motor: { name: "motor position", unit: "rad" },
  tau: { name: "torque", unit: "torque" }, current: { name: "current", unit: "A" },
  temperature: { name: "temperature", unit: "°C" },
};

// Statusword of a drive by CiA 402, bits 0 to 3, 5 and 6: mask, value, state, tone.
const STATES = [
  [0x4f, 0x00, "not ready to switch on", "faint"], [0x4f, 0x40, "switch on disabled", "faint"],
  [0x6f, 0x21, "ready to switch on", "faint"], [0x6f, 0x23, "switched on", "warn"],
  [0x6f, 0x27, "operation enabled", "good"], [0x6f, 0x07, "quick stop active", "warn"],
  [0x4f, 0x0f, "fault reaction active", "bad"], [0x4f, 0x08, "fault", "bad"],
];
const SIGNS = { good: "●", warn: "◐", bad: "✕", faint: "○" };
const WARNING = 0x80;

/** The state of a drive in words, as a sign, a text and a tone. */
export function driveState(word) {
  const [, , text, tone] = STATES.find(([mask, value]) => (word & mask) === value) ?? [0, 0, `unknown, 0x${word.toString(16)}`, "warn"];
  return [SIGNS[tone], `${text}${word & WARNING ? ", with a warning" : ""}`, tone];
}

function storedAngle() {
  try {
    return localStorage.getItem(KEY) ?? "rad";
  } catch {
    return "rad";
  }
}

export function signals(place) {
  const pose = new Pose();
  const past = new Past();
  const pick = h("div", { class: "row" });
  const chosenList = h("ul", { class: "row picked" });
  const chartPlace = h("div");
  const tablePlace = h("div");
  const note = h("p", { class: "faint" });
  place.append(
    h("div", { class: "beside" }, h("div", {}, pick, chosenList, chartPlace), pose.element), note, tablePlace,
  );
  let angle = storedAngle();
  let span = SPANS[0][0];
  let chosen = []; // [channel, joint], at most `MOST`
  let chart = null;
  let rows = [];
  let of = "";

  const revolute = (j) => live.facts.torque_units[j] !== "N";
  const factor = (channel, j) => (CHANNELS[channel].angle && revolute(j) && angle === "deg" ? DEGREES : 1);
  const unitOf = (channel, j) => {
    const { unit, angle: turns } = CHANNELS[channel];
    if (turns) return `${revolute(j) ? (angle === "deg" ? "°" : "rad") : "m"}${unit}`;
    return unit === "torque" ? (revolute(j) ? "N·m" : "N") : unit;
  };
  const there = () => Object.keys(CHANNELS).filter((channel) => live.sections.signals?.[channel]);
  const label = ([channel, j]) => `${CHANNELS[channel].name} of ${live.facts.joints[j]} [${unitOf(channel, j)}]`;

  const drawn = () => {
    if (!chart || !live.facts) return;
    const names = chosen.map(([channel, j]) => `${channel}.${j}`);
    const scaled = (value, k) => (value === null || value === undefined ? null : value * factor(...chosen[k]));
    chart.show(live.history.signals.columns(
      chosen.length, (row) => chosen.map(([channel, j], k) => scaled(row[channel]?.[j], k)), span,
      past.get(names, span), (found, i) => names.map((name, k) => scaled(found[name][i], k)),
    ));
  };
  const draw = () => {
    chart?.end();
    const units = [...new Set(chosen.map((each) => unitOf(...each)))];
    chart = chosen.length ? new Chart("Signals", "s before the newest value", units.join(", "), chosen.map((each, k) => ({ label: label(each), ...line(k) }))) : null;
    chartPlace.replaceChildren(chart ? chart.element : h("p", { class: "faint" }, "Choose up to four signals by the buttons of the table."));
    chosenList.replaceChildren(...chosen.map((each) => h("li", {}, h("button", { type: "button", "data-picked": each.join("."), onclick: () => toggle(each) }, `✕ ${label(each)}`))));
    rows.forEach(({ buttons }, j) => Object.entries(buttons).forEach(([channel, node]) => {
      mark(node, "aria-pressed", String(chosen.some(([other, k]) => other === channel && k === j)));
    }));
    drawn();
  };
  const toggle = ([channel, j]) => {
    const rest = chosen.filter(([other, k]) => other !== channel || k !== j);
    chosen = rest.length < chosen.length ? rest : [...chosen, [channel, j]].slice(-MOST);
    draw();
  };
  const controls = () => {
    const units = choice("angle", [["rad", "rad"], ["deg", "degrees"]], angle, (value) => {
      angle = value;
      try {
        localStorage.setItem(KEY, value);
      } catch {
        // This browser keeps nothing.
      }
      build();
      fill(live.sections.signals);
    });
    const times = spanChoice(SPANS, span, (value) => {
      span = value;
      drawn();
    });
    pick.replaceChildren(h("label", {}, "Angles in", units), times);
  };
  const build = () => {
    const channels = there();
    const words = live.sections.signals.status_word !== undefined;
    const columns = channels.map((channel) => {
      const units = [...new Set(live.facts.joints.map((_, j) => unitOf(channel, j)))];
      return { channel, text: `${CHANNELS[channel].name} [${units.join(", ")}]` };
    });
    const [whole, body] = table("Newest frame; a button puts a signal into the chart", [
      ["joint"], ...columns.map(({ text }) => [text, "number"]), ...(words ? [["state of the drive"]] : []),
    ], { fold: true });
    rows = live.facts.joints.map((joint, j) => {
      const buttons = {};
      const cells = columns.map(({ channel, text }) => {
        const value = h("span");
        buttons[channel] = h("button", { type: "button", class: "link", onclick: () => toggle([channel, j]) }, value, h("span", { class: "spoken" }, ` ${label([channel, j])}`));
        return [value, h("td", { class: "number", "data-label": text }, buttons[channel])];
      });
      const state = h("span");
      const valid = h("span", { class: "bad" });
      const row = h("tr", { "data-joint": joint }, h("th", { scope: "row" }, joint, valid), cells.map(([, cell]) => cell), words && h("td", { class: "all", "data-label": "drive" }, state));
      body.append(row);
      return { values: cells.map(([value]) => value), channels, buttons, state, valid };
    });
    tablePlace.replaceChildren(whole);
    if (!chosen.length && channels.includes("q")) chosen = live.facts.joints.slice(0, MOST).map((_, j) => ["q", j]);
    draw();
  };
  const fill = (found) => {
    rows.forEach((row, j) => {
      row.channels.forEach((channel, k) => {
        const value = found[channel][j];
        say(row.values[k], value === null ? "–" : (value * factor(channel, j)).toFixed(channel === "temperature" ? 1 : 4));
      });
      say(row.valid, found.valid && !found.valid[j] ? " ✕ not valid" : "");
      if (found.status_word === undefined) return;
      const word = found.status_word[j];
      const [sign, text, tone] = live.facts.source === "ads" ? ["", `0x${word.toString(16)}`, "faint"] : driveState(word);
      mark(row.state, "class", tone);
      say(row.state, `${sign} ${text}`.trim());
    });
  };
  const show = () => {
    const found = live.sections.signals;
    if (!live.facts || !found) {
      say(note, live.facts ? "No frame has come yet. Of a recording that is replayed as fast as possible none is shown." : "");
      return;
    }
    const key = `${live.facts.hash} ${there()} ${found.status_word !== undefined}`;
    if (of !== key) {
      of = key;
      say(note, "");
      controls();
      build();
    }
    fill(found);
    pose.show(live.prior, found.q);
  };
  const ask = priorKeeper();
  show();
  ask();
  const timer = setInterval(drawn, DRAW_MS);
  const asking = setInterval(ask, ASK_MS);
  const end = listen((changed) => {
    if (["signals", "facts", "prior"].some((name) => changed.has(name))) show();
    if (changed.has("facts")) ask();
  });
  return () => {
    clearInterval(timer);
    clearInterval(asking);
    end();
    chart?.end();
  };
}
