// Live estimates: value with its 95 % band, beside what the robot's description says; one of them over time.

import { Chart, edge, line } from "../chart.js";
import { h, mark, say, table } from "../dom.js";
import { Z_95, banded, number, parameterStatus, unit } from "../format.js";
import { Past, spanChoice } from "../history.js";
import { listen, live, priorKeeper } from "../live.js";

const DRAW_MS = 250;
const SPANS = [[120, "2 min"], [3600, "1 h"]];
const ASK_MS = 3000; // until what the description says is there

export function estimates(place) {
  const [whole, body] = table("Parameters, value ± half width of the 95 % interval", [
    ["parameter"], ["value", "number"], ["CAD", "number"], ["status"], ["learning"],
  ], { list: true });
  const chartPlace = h("div");
  const past = new Past();
  let span = SPANS[0][0];
  const time = spanChoice(SPANS, span, (value) => {
    span = value;
    draw();
  });
  place.append(time, chartPlace, whole);
  let rows = [];
  let chart = null;
  let chosen = -1;

  const choose = (k) => {
    chart?.end();
    chosen = k;
    rows.forEach((row, other) => mark(row.line, "aria-selected", other === k ? "true" : "false"));
    if (k < 0 || !live.facts) return;
    const { parameters, units, expressions } = live.facts;
    chart = new Chart(`${parameters[k]} over time, with its 95 % band`, "s before the newest value", unit(units[k]), [
      { label: parameters[k], ...line(0) }, { label: "upper", ...edge() }, { label: "lower", ...edge() },
      { label: "CAD", ...line(1) },
    ], { bands: [[2, 3]] });
    const exact = expressions[k] === parameters[k] ? null : h("p", { class: "faint" }, `${parameters[k]} stands for ${expressions[k]}`);
    chartPlace.replaceChildren(...[chart.element, exact].filter(Boolean));
    draw();
  };
  const draw = () => {
    if (!chart || chosen < 0) return;
    const cad = live.prior?.hash === live.facts?.hash ? live.prior?.parameters[chosen] : null;
    const [theta, std] = [`theta.${chosen}`, `std.${chosen}`];
    const band = (value, deviation) => {
      if (value === null) return [null, null, null, cad];
      return [value, value + Z_95 * deviation, value - Z_95 * deviation, cad];
    };
    chart.show(live.history.estimates.columns(
      4, (row) => band(row.theta[chosen], row.std[chosen]), span,
      past.get([theta, std], span), (found, i) => band(found[theta][i], found[std][i]),
    ));
  };
  const build = () => {
    const { parameters, joints, of_joint: ofJoint, units } = live.facts;
    rows = parameters.map((name, k) => {
      const cells = {
        value: h("td", { class: "number" }), cad: h("td", { class: "number", "data-label": "CAD" }),
        status: h("span"), learning: h("td"),
      };
      const pick = h("button", { type: "button", class: "link", onclick: () => choose(k) }, name);
      const row = h(
        "tr", { "data-parameter": name }, h("th", { scope: "row" }, pick, h("small", {}, ` ${unit(units[k])}`)),
        cells.value, cells.cad, h("td", {}, cells.status), cells.learning,
      );
      return { line: row, ...cells };
    });
    const groups = joints.map((joint, j) => [joint, rows.filter((_, k) => ofJoint[k] === j)]);
    groups.push(["", rows.filter((_, k) => ofJoint[k] < 0)]);
    body.replaceChildren(
      ...groups.filter(([, found]) => found.length).flatMap(([joint, found]) => [
        h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: 5 }, joint || "of the whole arm")),
        ...found.map((row) => row.line),
      ]),
    );
    chosen = -1;
  };
  const show = () => {
    if (!live.facts) return;
    const none = live.facts.parameters.map(() => null); // before the first estimate nothing is known of any
    const { estimate, standing } = {
      estimate: { hash: live.facts.hash, theta: none, std: none },
      standing: { status: none.map(() => "unheard"), excited: none },
      ...live.sections,
    };
    if (estimate.hash !== live.facts.hash) return;
    if (rows.length !== live.facts.parameters.length || rows.of !== live.facts.hash) {
      build();
      rows.of = live.facts.hash;
    }
    const cad = live.prior?.hash === live.facts.hash ? live.prior.parameters : null;
    rows.forEach((row, k) => {
      const [sign, text, tone] = parameterStatus(standing.status[k]);
      say(row.value, banded(estimate.theta[k], Z_95 * estimate.std[k]));
      say(row.cad, cad ? number(cad[k]) : "…");
      mark(row.status, "class", tone);
      say(row.status, `${sign} ${text}`);
      say(row.learning, standing.excited[k] ? "▲ now" : "");
    });
    const first = standing.status.indexOf("estimated");
    if (chosen < 0 && first >= 0) choose(first);
  };
  const ask = priorKeeper();
  show();
  ask();
  const timer = setInterval(draw, DRAW_MS);
  const asking = setInterval(ask, ASK_MS);
  const end = listen((changed) => {
    if (["estimate", "standing", "facts", "prior"].some((name) => changed.has(name))) show();
    if (changed.has("facts")) ask();
  });
  return () => {
    clearInterval(timer);
    clearInterval(asking);
    end();
    chart?.end();
  };
}
