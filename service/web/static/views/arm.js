// One arm: what it does, and one of the views of its estimate.

import { permitOf } from "../actions.js";
import { h, mark, say } from "../dom.js";
import { seconds } from "../format.js";
import { age, listen, live } from "../live.js";
import { bus } from "./bus.js";
import { estimates } from "./estimates.js";
import { armButtons, commandedBy, movement, standing } from "./fleet.js";
import { friction } from "./friction.js";
import { learning } from "./learning.js";
import { signals } from "./signals.js";
import { torque } from "./torque.js";

const PARTS = { estimates, signals, friction, learning, torque, bus };
const NAMES = {
  estimates: "Estimates", signals: "Signals", friction: "Friction", learning: "Learning", torque: "Torque", bus: "Bus and timing",
};
const OLD_S = 3.0; // what is so old is not the present

export function arm(content, [name = "", part = "estimates"]) {
  const shown = PARTS[part] ? part : "estimates";
  const state = h("span", {});
  const moves = h("span", {});
  const fresh = h("p", { class: "faint" });
  const spoken = h("p", { class: "spoken", role: "status" }); // `fresh` changes four times a second
  const buttons = h("div", {});
  const permit = h("p", { class: "live" });
  const parts = h("nav", { "aria-label": "Views of this arm" });
  const place = h("div", { class: "live" });
  parts.append(
    ...Object.entries(NAMES).map(([key, text]) =>
      h("a", { href: `#/arm/${encodeURIComponent(name)}/${key}`, "aria-current": key === shown && "page" }, text),
    ),
  );
  content.append(h("h1", {}, name), h("p", { class: "row live" }, state, moves), buttons, permit, parts, fresh, spoken, place);
  const leave = PARTS[shown](place) ?? (() => {});
  let commanded = null;
  const showState = () => {
    const found = live.fleet?.arms.find((each) => each.name === name);
    if (!found) {
      if (live.fleet) say(state, "there is no such arm");
      return;
    }
    const [sign, text, tone] = standing(found);
    mark(state, "class", tone);
    say(state, `${sign} ${text}`);
    say(moves, `movement: ${movement(found)}`);
    const held = permitOf(found);
    say(permit, held ? `The drives are on; permit ${held}, for \`thetad run\`.` : "");
    if (commanded !== commandedBy(found)) {
      commanded = commandedBy(found);
      buttons.replaceChildren(...[armButtons(found)].filter(Boolean));
    }
  };
  const showValueAge = (section, name, cause) => () => {
    const found = live.sections[section];
    const old = found ? age(found.at) : null;
    place.classList.toggle("old", old !== null && old > OLD_S);
    if (old === null) say(fresh, live.connected ? `No ${name} heard yet.` : "");
    else if (old > OLD_S) say(fresh, `⚠ No new ${name} for ${seconds(old)}: ${cause} has stopped. Values are from then.`);
    else say(fresh, `${name[0].toUpperCase()}${name.slice(1)} ${seconds(old)} old, source time ${found.t.toFixed(2)} s.`);
  };
  const showTorqueAge = showValueAge("torque", "torque", "the source or the estimator");
  const showSignalAge = showValueAge("signals", "frame", "the source");
  const showBusAge = () => {
    const at = live.sections.bus?.at ?? {};
    const old = ["acquisition", "estimator"].filter((src) => at[src] && age(at[src]) > OLD_S);
    place.classList.toggle("old", old.includes("acquisition"));
    if (!at.acquisition) say(fresh, live.connected ? "The acquisition has not been heard yet." : "");
    else if (old.length) say(fresh, `⚠ Not heard: ${old.map((src) => `${src} for ${seconds(age(at[src]))}`).join(", ")}. Values are from then.`);
    else say(fresh, `Acquisition heard ${seconds(age(at.acquisition))} ago.`);
  };
  const showEstimateAge = () => {
    const found = live.sections.estimate;
    const old = found ? age(found.at) : null;
    place.classList.toggle("old", old !== null && old > OLD_S);
    if (old === null) say(fresh, live.connected ? "No estimate heard yet: the arm has not moved, or the estimator is silent." : "");
    else if (old > OLD_S) say(fresh, `⚠ No new estimate for ${seconds(old)}: the arm stands still, is guided, or its source has stopped. Values are from then.`);
    else say(fresh, `Estimate of ${found.used} rows, ${seconds(old)} old, source time ${found.t.toFixed(2)} s, ${found.lost} frames lost.`);
  };
  const showAge = { torque: showTorqueAge, signals: showSignalAge, bus: showBusAge }[shown] ?? showEstimateAge; // each by what it shows
  const showFresh = () => {
    showAge();
    say(spoken, place.classList.contains("old") ? "Values are old." : "");
  };
  showState();
  showFresh();
  const timer = setInterval(showFresh, 250);
  const end = listen((changed) => changed.has("fleet") && showState());
  return () => {
    clearInterval(timer);
    end();
    leave();
  };
}
