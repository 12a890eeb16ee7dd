// All arms and processes at a glance.

import { button } from "../actions.js";
import { h, pairs, table } from "../dom.js";
import { bytes, seconds } from "../format.js";
import { listen, live } from "../live.js";

/** How an arm is, as a sign, a text and a tone. */
export function standing(arm) {
  if (arm.problems.length) return ["✕", "not at work", "bad"];
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

function card(arm) {
  const [sign, text, tone] = standing(arm);
  const p = arm.parameters;
  const recorder = arm.recorder;
  return h(
    "section", { class: "card", "data-arm": arm.name },
    h("h2", {}, h("a", { href: `#/arm/${encodeURIComponent(arm.name)}` }, arm.name)),
    h("span", { class: tone }, `${sign} ${text}`),
    pairs([
      ["robot", arm.robot ?? "–"],
      ["source", source(arm)],
      ["movement", movement(arm)],
      ["determined", p ? `${p.estimated} of ${p.of} parameters` : "no estimate heard yet"],
      ["learning now", p ? `${p.excited} of ${p.of}` : "–"],
      ["estimate", arm.estimate_age_s === null ? "none yet" : `${seconds(arm.estimate_age_s)} old`],
      ["active model", arm.model ? arm.model.slice(0, 12) : "none"],
      ["drift", arm.drift?.state ?? "–"],
      ["frames lost", arm.lost ?? "–"],
      recorder && ["recorder", recorder.state + (recorder.state === "recording" ? ` ${recorder.file}, ${bytes(recorder.bytes)}` : "")],
    ]),
    armButtons(arm),
  );
}

export function fleet(content) {
  const cards = h("div", { class: "cards live" });
  const [processes, body] = table("Its processes", [
    ["process"], ["state"], ["restarts", "number"], ["processor time", "number"], ["memory", "number"], ["last error"],
  ], { list: true });
  content.append(h("h1", {}, "Fleet"), cards, h("h2", {}, "The daemon"), h("div", { class: "live" }, processes));
  let shown = "";
  const show = () => {
    const found = live.fleet;
    if (!found) return;
    // Cards are made anew only when what they show has changed: a button must not go away under a finger.
    const kept = JSON.stringify(found.arms.map((arm) => ({ ...arm, estimate_age_s: seconds(arm.estimate_age_s), hash: 0 })));
    if (kept !== shown && !cards.matches(":active")) {
      const focused = document.activeElement;
      const place = [...cards.querySelectorAll("a, button")].indexOf(focused);
      shown = kept;
      cards.replaceChildren(...found.arms.map(card));
      if (place >= 0) cards.querySelectorAll("a, button")[place]?.focus();
    }
    body.replaceChildren(
      ...found.processes.map((each) => {
        const ready = each.state === "ready";
        return h(
          "tr", {},
          h("th", { scope: "row" }, each.name),
          h("td", {}, h("span", { class: ready ? "good" : "bad" }, `${ready ? "●" : "✕"} ${each.state}`)),
          h("td", { class: "number", "data-label": "restarts" }, each.restarts),
          h("td", { class: "number", "data-label": "processor time" }, each.cpu_s === null ? "–" : `${each.cpu_s.toFixed(1)} s`),
          h("td", { class: "number", "data-label": "memory" }, each.resident_bytes === null ? "–" : bytes(each.resident_bytes)),
          h("td", {}, each.last_error),
        );
      }),
    );
  };
  show();
  return listen((changed) => changed.has("fleet") && show());
}
