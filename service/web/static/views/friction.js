// Friction of each joint against its velocity: estimated, with its 95 % band, beside what the description says.

import { Chart, edge, line } from "../chart.js";
import { h, say } from "../dom.js";
import { unit } from "../format.js";
import { askPrior, listen, live } from "../live.js";

const ASK_MS = 2000;

export function friction(place) {
  const note = h("p", { class: "faint" });
  const charts = h("div", { class: "charts" });
  place.append(note, charts);
  let shown = [];
  let of = "";
  const build = (curves) => {
    shown.forEach((each) => each.chart.end());
    shown = curves.map((curve) => {
      const chart = new Chart(curve.joint, unit(curve.speed_unit), unit(curve.unit), [
        { label: "estimated", ...line(0) }, { label: "upper", ...edge() }, { label: "lower", ...edge() },
        { label: "CAD", ...line(1) },
      ], { bands: [[2, 3]] });
      const text = h("p", { class: "faint" });
      return { chart, text, element: h("div", { "data-joint": curve.joint }, chart.element, text) };
    });
    charts.replaceChildren(...shown.map((each) => each.element));
  };
  const show = () => {
    const { prior } = live;
    if (!prior) return;
    const warm = prior.temperature === null ? "" : ` at ${prior.temperature} °C`;
    say(note, `Friction that depends on velocity, with the torque offset${warm}. The band is that of the estimated terms; velocity constants are taken as given. Beyond velocities that the arm has had, and that are not known here, both curves are extrapolated.`);
    const key = `${prior.hash} ${prior.friction.map((curve) => curve.joint)}`;
    if (key !== of) {
      of = key;
      build(prior.friction);
    }
    prior.friction.forEach((curve, k) => {
      const none = curve.velocity.map(() => null);
      shown[k].chart.show([curve.velocity, curve.estimated ?? none, curve.upper ?? none, curve.lower ?? none, curve.described ?? none]);
      const texts = [];
      if (curve.undetermined.length) texts.push(`○ ${curve.undetermined.join(", ")}: not determined by the data, so there is no estimated curve.`);
      if (!curve.described) texts.push("The robot's description does not state all of this joint's friction.");
      say(shown[k].text, texts.join(" "));
    });
    if (!prior.friction.length) say(note, "The model of this arm has no friction that depends on velocity.");
  };
  const ask = () => live.connected && askPrior().catch((error) => say(note, `Friction is not to be had: ${error.message}`));
  show();
  ask();
  const timer = setInterval(ask, ASK_MS);
  const end = listen((changed) => changed.has("prior") && show());
  return () => {
    clearInterval(timer);
    end();
    shown.forEach((each) => each.chart.end());
  };
}
