// Models of each arm: which is active, how good they are, and how it came to be so.

import { button } from "../actions.js";
import { h, table } from "../dom.js";
import { when } from "../format.js";
import { poll } from "../lists.js";
import { promotion } from "./jobs.js";

const EVERY_MS = 2000;

/** What a roll-back would make active, as [model], null for none; [] where there is nothing to go back to. */
export function before(active, history) {
  const steps = []; // the models of successive roll-backs, the active one last
  const downTo = (model) => {
    if (!steps.includes(model)) steps.push(model);
    while (steps.at(-1) !== model) steps.pop();
  };
  for (const { action, model, previous } of history) {
    if (action === "rolled_back") {
      if (steps.length && steps.at(-1) === previous) steps.pop();
      downTo(model);
    } else {
      downTo(previous);
      steps.push(model);
    }
  }
  return active && steps.length > 1 ? [steps.at(-2)] : [];
}

function ofArm(arm, { active, models: found, history }) {
  const [whole, body] = table(`Models of ${arm}`, [["model"], ["made"], ["method"], ["verdict"], ["torque error", "number"], ["from"], ["do"]], { list: true });
  for (const model of [...found].reverse()) {
    const is = model.id === active;
    body.append(h(
      "tr", { "data-model": model.id, "data-active": String(is) },
      h("th", { scope: "row" }, h("code", {}, model.id.slice(0, 12)), is && h("span", { class: "good" }, " ★ active")),
      h("td", {}, when(model.created)), h("td", {}, model.method),
      h("td", {}, h("span", { class: model.verdict === "ok" ? "good" : "bad" }, `${model.verdict === "ok" ? "✓" : "✕"} ${model.verdict.replaceAll("_", " ")}`)),
      h("td", { class: "number", "data-label": "torque error" }, model.relative_error === null ? "–" : `${(100 * model.relative_error).toFixed(2)} %`),
      h("td", {}, model.job === null ? model.origin : h("a", { href: `#/jobs/${model.job}` }, `job ${model.job}`)),
      h("td", {}, !is && promotion(arm, `model:${model.id}`)),
    ));
  }
  if (!found.length) body.append(h("tr", {}, h("td", { colspan: 7 }, "There are no models yet: identify the arm.")));
  const changes = [...history].reverse().slice(0, 10).map((each) =>
    h("li", {}, `${when(each.time)} ${each.action.replace("_", " ")} to ${each.model ? each.model.slice(0, 12) : "no model"}${each.reason ? `: ${each.reason}` : ""}`));
  return h(
    "section", { "data-models": arm }, h("h2", {}, arm), whole,
    h("div", { class: "row" }, before(active, history).map((model) =>
      button("Roll back", "rollback", () => ({ do: "rollback", arm, reason: "from the dashboard" }), {
        ask: `Let ${model ? `model ${model.slice(0, 12)}` : "no model"} of ${arm} be active again instead of ${active.slice(0, 12)}?`,
      }))),
    changes.length > 0 && h("h3", {}, "Changes"), h("ul", {}, changes),
  );
}

export function models(content) {
  const place = h("div", { class: "live" });
  content.append(h("h1", {}, "Models"), place);
  return poll("/api/models", EVERY_MS, (found) => {
    place.replaceChildren(...Object.entries(found.arms).map(([arm, entry]) => ofArm(arm, entry)));
  });
}
