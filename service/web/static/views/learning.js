// What is being learned now: excitation by joint, innovation and forgetting factor over time.

import { Chart, edge, line } from "../chart.js";
import { choice, h, mark, say, table } from "../dom.js";
import { Z_95, number, seconds, unit } from "../format.js";
import { Past, spanChoice } from "../history.js";
import { listen, live } from "../live.js";

const DRAW_MS = 250;
const SPANS = [[60, "1 min"], [3600, "1 h"]];
const LEAST = 1e-6; // of 1 - λ as drawn: where nothing is forgotten it is zero, which a logarithmic axis does not have

const forgotten = (lam) => (lam === null ? null : Math.max(1 - lam, LEAST));

export function learning(place) {
  const [meters, meterBody] = table("Parameters that the motion of the last seconds determines", [["joint"], ["learning now"], ["parameters"]], { list: true });
  const [numbers, numberBody] = table("Innovation: newest torque less what was predicted of it", [
    ["joint"], ["innovation", "number"], ["usual size σ", "number"], ["λ", "number"], ["memory", "number"],
  ], { fold: true });
  const pick = h("div", { class: "row" });
  const [innovationPlace, forgettingPlace] = [h("div"), h("div")];
  const charts = h("div", { class: "charts" }, innovationPlace, forgettingPlace);
  place.append(h("h2", {}, "Excitation"), meters, h("h2", {}, "Innovation and forgetting factor λ"), pick, charts, numbers);
  const [past, pastForgetting] = [new Past(), new Past()];
  let span = SPANS[0][0];
  let joints = [];
  let innovation = null;
  let forgetting = null;
  let joint = 0;

  const drawn = () => {
    if (!innovation) return;
    const { estimates } = live.history;
    const around = (value, sigma) => (sigma === null ? [value, null, null] : [value, Z_95 * sigma, -Z_95 * sigma]);
    const [of, sigma] = [`innovation.${joint}`, `sigma.${joint}`];
    innovation.show(estimates.columns(
      3, (row) => around(row.innovation[joint], row.sigma[joint]), span,
      past.get([of, sigma], span), (found, i) => around(found[of][i], found[sigma][i]),
    ));
    const names = joints.map((_, k) => `lam.${k}`);
    forgetting.show(estimates.columns(
      joints.length, (row) => row.lam.map(forgotten), span,
      pastForgetting.get(names, span), (found, i) => names.map((name) => forgotten(found[name][i])),
    ));
  };
  const drawInnovation = () => {
    innovation?.end();
    const { joints: names, torque_units: units } = live.facts;
    innovation = new Chart(`Innovation of ${names[joint]}, with 95 % of its usual size`, "s before the newest value", unit(units[joint]), [
      { label: "innovation", ...line(0) }, { label: "upper", ...edge() }, { label: "lower", ...edge() },
    ], { bands: [[2, 3]] });
    innovationPlace.replaceChildren(innovation.element);
    drawn();
  };
  const chart = () => {
    forgetting?.end();
    const { joints: names } = live.facts;
    forgetting = new Chart("What each update forgets, 1 − λ; at the bottom nothing", "s before the newest value", "1 − λ",
      names.map((label, k) => ({ label, ...line(k) })), { log: true });
    forgettingPlace.replaceChildren(forgetting.element);
    pick.replaceChildren(
      h("label", {}, "Joint", choice("joint", names.map((name, k) => [String(k), name]), String(joint), (value) => {
        joint = Number(value);
        drawInnovation();
      })),
      spanChoice(SPANS, span, (value) => {
        span = value;
        drawn();
      }),
    );
    drawInnovation();
  };
  const build = () => {
    const { joints: names, parameters, of_joint: ofJoint } = live.facts;
    joints = names.map((name, j) => {
      const own = parameters.map((text, k) => [text, k]).filter(([, k]) => ofJoint[k] === j);
      const meter = h("meter", { min: 0, max: own.length, "aria-label": `${name}: parameters being learned` });
      const text = h("span");
      const chips = own.map(([label, k]) => ({ k, node: h("li", {}, label) }));
      const cells = ["innovation", "usual size σ", "λ", "memory"].map((label) => h("td", { class: "number", "data-label": label }));
      return {
        meter, text, chips, cells, own,
        meterRow: h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, text, " ", meter), h("td", {}, h("ul", { class: "chips" }, chips.map((each) => each.node)))),
        row: h("tr", {}, h("th", { scope: "row" }, name), cells),
      };
    });
    meterBody.replaceChildren(...joints.map((each) => each.meterRow));
    numberBody.replaceChildren(...joints.map((each) => each.row));
    joint = Math.min(joint, joints.length - 1);
    chart();
  };
  let of = "";
  const show = () => {
    const { estimate, standing } = live.sections;
    if (!live.facts || !estimate || !standing || estimate.hash !== live.facts.hash) return;
    if (of !== live.facts.hash) {
      of = live.facts.hash;
      build();
    }
    joints.forEach((each, j) => {
      const count = each.own.filter(([, k]) => standing.excited[k]).length;
      mark(each.meter, "value", count);
      say(each.text, `${count} of ${each.own.length}`);
      for (const { k, node } of each.chips) {
        mark(node, "class", standing.excited[k] ? "on" : false);
        mark(node, "title", standing.excited[k] ? "learning now" : "not excited");
      }
      const torqueUnit = unit(live.facts.torque_units[j]);
      say(each.cells[0], estimate.innovation[j] === null ? "at rest" : `${number(estimate.innovation[j], 3)} ${torqueUnit}`);
      say(each.cells[1], estimate.sigma[j] === null ? "–" : `${number(estimate.sigma[j], 3)} ${torqueUnit}`);
      say(each.cells[2], estimate.lam[j].toFixed(6));
      say(each.cells[3], estimate.lam[j] < 1 ? seconds(1 / ((1 - estimate.lam[j]) * live.facts.update_hz)) : "nothing is forgotten");
    });
  };
  show();
  const timer = setInterval(drawn, DRAW_MS);
  const end = listen((changed) => ["estimate", "standing", "facts"].some((name) => changed.has(name)) && show());
  return () => {
    clearInterval(timer);
    end();
    innovation?.end();
    forgetting?.end();
  };
}
