// All arms and processes at a glance.

import { button } from "../actions.js";
import { changingPairs, h, mark, say, table } from "../dom.js";
import { bytes, seconds } from "../format.js";
import { listen, live } from "../live.js";

/** What speaks against relying on an arm that is at work, in words. */
export function warnings(arm) {
  const texts = [];
  if (arm.drift?.state === "drifted") texts.push(`the estimate has left the active model: ${arm.drift.reason}`);
  if (arm.parameters?.invalid) texts.push(`the model does not explain the torque of ${arm.parameters.invalid} parameters`);
  texts.push(...[arm.trust?.reason, arm.supply?.reason].filter(Boolean));
  if (arm.recorder?.error) texts.push(`recording failed: ${arm.recorder.error}`);
  return texts;
}

/** How an arm is, as a sign, a text and a tone. */
export function standing(arm) {
  if (arm.problems.length) return ["✕", "not at work", "bad"];
  const count = warnings(arm).length;
  if (count) return ["⚠", count === 1 ? "a warning" : `${count} warnings`, "warn"];
  if (arm.state === "ended") return ["■", "its source has ended", "faint"];
  return ["●", "at work", "good"];
}

/** What moves the arm, in words; of an acquisition that is not heard any more, what it said last. */
export function movement(arm) {
  const said = moves(arm);
  return arm.silent && (arm.safety || arm.motion) ? `not known; last heard: ${said}` : said;
}

function moves(arm) {
  const { safety, motion } = arm;
  if (safety) {
    const run = safety.run && safety.state !== "disarmed" ? `, run ${safety.run.number} ${safety.run.outcome}` : "";
    return `${safety.state}${run}${safety.reason ? ` (${safety.reason})` : ""}`;
  }
  if (motion) return `${motion.state}${motion.reason ? ` (${motion.reason})` : ""}`;
  return arm.source === "replay" ? "none: a recording" : "not commanded";
}

/** What can be asked of what moves the arm: its runs and guiding, the motion of its configuration, or nothing. */
export function commandedBy(arm) {
  return arm.safety ? "safety" : arm.motion ? "motion" : "";
}

/** Buttons that arm and stop; only of an arm whose drives are commanded. */
export function armButtons(arm) {
  const name = arm.name;
  if (commandedBy(arm) === "motion") {
    return h("div", { class: "row" }, button("Stop, drives off", "disable", () => ({ do: "disable", arm: name }), { kind: "stop" }));
  }
  if (!arm.safety) return null;
  const ask = `Switch the drives of ${name} on? Whoever has the permit may move it then.`;
  return h(
    "div", { class: "row" },
    button("Abort", "abort", () => ({ do: "abort", arm: name }), { kind: "stop" }),
    button("Arm", "arm", () => ({ do: "arm", arm: name }), { ask }),
    button("Disarm", "disarm", () => ({ do: "disarm", arm: name })),
  );
}

function source(arm) {
  const kind = arm.source ?? "–";
  if (arm.silent) return `${kind}, not heard`;
  return `${kind}, ${arm.state ?? "–"}${arm.rate_hz ? `, ${Math.round(arm.rate_hz)} frames/s` : ""}`;
}

const FACTS = [
  "robot", "source", "movement", "determined", "learning now", "estimate", "active model", "drift", "frames lost", "recorder",
];

/** A card that stays while its arm is there: neither a finger nor the focus loses its button. */
function card({ name }) {
  const state = h("span");
  const reasons = h("ul", { class: "reasons" });
  const [facts, show] = changingPairs(FACTS);
  const buttons = h("div");
  const node = h(
    "section", { class: "card", "data-arm": name, "aria-label": name },
    h("h2", {}, h("a", { href: `#/arm/${encodeURIComponent(name)}` }, name)), state, reasons, facts, buttons,
  );
  let commanded = null;
  let reasoned = "";
  const update = (arm) => {
    const [sign, text, tone] = standing(arm);
    mark(node, "data-tone", tone);
    mark(state, "class", tone);
    say(state, `${sign} ${text}`);
    const texts = [...arm.problems, ...warnings(arm)];
    if (reasoned !== texts.join("\n")) reasons.replaceChildren(...texts.map((each) => h("li", {}, each)));
    reasoned = texts.join("\n");
    const { parameters: p, recorder } = arm;
    show([
      arm.robot ?? "–", source(arm), movement(arm), p ? `${p.estimated} of ${p.of} parameters` : "no estimate heard yet",
      p ? `${p.excited} of ${p.of}` : "–", arm.estimate_age_s === null ? "none yet" : `${seconds(arm.estimate_age_s)} old`,
      arm.model ? arm.model.slice(0, 12) : "none", arm.drift?.state ?? "–", arm.lost ?? "–",
      recorder && recorder.state + (recorder.state === "recording" ? ` ${recorder.file}, ${bytes(recorder.bytes)}` : ""),
    ]);
    if (commanded !== commandedBy(arm)) {
      commanded = commandedBy(arm);
      buttons.replaceChildren(...[armButtons(arm)].filter(Boolean));
    }
  };
  return { node, update };
}

function processRow({ name }) {
  const state = h("span");
  const labelled = (label) => h("td", { class: "number", "data-label": label });
  const [restarts, time, memory, error] = [labelled("restarts"), labelled("processor time"), labelled("memory"), h("td")];
  const node = h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, state), restarts, time, memory, error);
  const update = (process) => {
    const ready = process.state === "ready";
    mark(state, "class", ready ? "good" : "bad");
    say(state, `${ready ? "●" : "✕"} ${process.state}`);
    say(restarts, process.restarts);
    say(time, process.cpu_s === null ? "–" : `${process.cpu_s.toFixed(1)} s`);
    say(memory, process.resident_bytes === null ? "–" : bytes(process.resident_bytes));
    say(error, process.last_error);
  };
  return { node, update };
}

export function fleet(content) {
  const cards = h("div", { class: "cards live" });
  const [processes, body] = table("Its processes", [
    ["process"], ["state"], ["restarts", "number"], ["processor time", "number"], ["memory", "number"], ["last error"],
  ], { list: true });
  content.append(h("h1", {}, "Fleet"), cards, h("h2", {}, "The daemon"), h("div", { class: "live" }, processes));
  let shown = new Map();
  let rows = new Map();
  const show = () => {
    const found = live.fleet;
    if (!found) return;
    if ([...shown.keys()].join() !== found.arms.map((arm) => arm.name).join()) {
      shown = new Map(found.arms.map((arm) => [arm.name, card(arm)]));
      cards.replaceChildren(...[...shown.values()].map((each) => each.node));
    }
    for (const arm of found.arms) shown.get(arm.name).update(arm);
    if ([...rows.keys()].join() !== found.processes.map((each) => each.name).join()) {
      rows = new Map(found.processes.map((each) => [each.name, processRow(each)]));
      body.replaceChildren(...[...rows.values()].map((each) => each.node));
    }
    for (const each of found.processes) rows.get(each.name).update(each);
  };
  show();
  return listen((changed) => changed.has("fleet") && show());
}
