// What is being learned now: excitation by joint, innovation and forgetting factor over time.

import { Chart, edge, line } from "../chart.js";
import { choice, h, mark, say, table } from "../dom.js";
import { Z_95, number, unit } from "../format.js";
import { listen, live } from "../live.js";

const DRAW_MS = 250;
const SPAN_S = 60;

export function learning(place) {
  const [meters, meterBody] = table("Parameters that the motion of the last seconds determines", [["joint"], ["learning now"], ["parameters"]]);
  const [numbers, numberBody] = table("Innovation: newest torque less what was predicted of it", [
    ["joint"], ["innovation", "number"], ["usual size σ", "number"], ["λ", "number"],
  ]);
  const chartPlace = h("div");
  place.append(h("h2", {}, "Excitation"), meters, h("h2", {}, "Innovation and λ"), chartPlace, numbers);
  let joints = [];
  let innovation = null;
  let forgetting = null;
  let joint = 0;

  const drawn = () => {
    if (!innovation) return;
    innovation.show(
      live.history.columns("estimates", 3, (row) => {
        const limit = row.sigma[joint] === null ? null : Z_95 * row.sigma[joint];
        return [row.innovation[joint], limit, limit === null ? null : -limit];
      }, SPAN_S),
    );
    forgetting.show(live.history.columns("estimates", joints.length, (row) => row.lam, SPAN_S));
  };
  const chart = () => {
    innovation?.end();
    forgetting?.end();
    const { joints: names, torque_units: units } = live.facts;
    innovation = new Chart(`Innovation of ${names[joint]}, with 95 % of its usual size`, "s before the newest value", unit(units[joint]), [
      { label: "innovation", ...line(0) }, { label: "upper", ...edge() }, { label: "lower", ...edge() },
    ], [[2, 3]]);
    forgetting = new Chart("Forgetting factor λ of each update", "s before the newest value", "λ", names.map((label, k) => ({ label, ...line(k) })));
    const pick = choice("joint", names.map((name, k) => [String(k), name]), String(joint), (value) => {
      joint = Number(value);
      chart();
    });
    chartPlace.replaceChildren(h("label", {}, "Joint", pick), h("div", { class: "charts" }, innovation.element, forgetting.element));
    drawn();
  };
  const build = () => {
    const { joints: names, parameters, of_joint: ofJoint } = live.facts;
    joints = names.map((name, j) => {
      const own = parameters.map((text, k) => [text, k]).filter(([, k]) => ofJoint[k] === j);
      const meter = h("meter", { min: 0, max: own.length, "aria-label": `${name}: parameters being learned` });
      const text = h("span");
      const chips = own.map(([label, k]) => ({ k, node: h("li", {}, label) }));
      const cells = [0, 1, 2].map(() => h("td", { class: "number" }));
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
