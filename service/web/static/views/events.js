// What happened, newest first.

import { choice, h, table } from "../dom.js";
import { when } from "../format.js";
import { listen, live } from "../live.js";
import { poll } from "../lists.js";

const EVERY_MS = 1000;
const MODELS_MS = 5000;
const BAD = /failed|invalid|ended|fault|drift|stopped|missing|salvaged/;
const HASH = /\b(?=[0-9]*[a-f])[0-9a-f]{12,64}\b/g;

/** A text without hashes: a model is that of a job, where it is known. */
export function plain(text, jobs) {
  const job = (hash) => Object.keys(jobs).find((id) => id.startsWith(hash) || hash.startsWith(id));
  return text.replace(HASH, (hash) => (job(hash) ? `of job ${jobs[job(hash)]}` : "…"));
}

export function events(content) {
  const filter = h("div", { class: "row" });
  const [whole, body] = table("Newest first", [["time"], ["arm"], ["event"], ["what happened"]], { list: true });
  content.append(h("h1", {}, "Events"), filter, h("div", { class: "live" }, whole));
  let all = [];
  let ofJob = {}; // by the hash of a model
  let arm = "";
  const show = () => {
    body.replaceChildren(...all.filter((each) => !arm || each.arm === arm).map((each) => h(
      "tr", { "data-event": each.kind }, h("td", {}, when(each.time)), h("td", {}, each.arm ?? ""),
      h("th", { scope: "row" }, `${BAD.test(each.kind) ? "⚠ " : ""}${each.kind.replaceAll("_", " ")}`),
      h("td", {}, each.job !== null && h("a", { href: `#/jobs/${each.job}` }, `job ${each.job}`), ` ${plain(each.text, ofJob)}`),
    )));
  };
  const choose = () => {
    if (filter.firstChild || !live.session) return;
    const arms = [["", "all"], ...live.session.arms.map((name) => [name, name])];
    filter.append(h("label", {}, "Arm", choice("arm", arms, "", (value) => { arm = value; show(); })));
  };
  choose();
  const end = listen(choose);
  const stop = poll("/api/events", EVERY_MS, (found) => {
    all = [...found.events].reverse();
    show();
  });
  const stopModels = poll("/api/models", MODELS_MS, ({ arms }) => {
    const known = Object.values(arms).flatMap(({ models }) => models).filter(({ job }) => job !== null);
    ofJob = Object.fromEntries(known.map(({ id, job }) => [id, job]));
    show();
  });
  return () => {
    end();
    stop();
    stopModels();
  };
}
