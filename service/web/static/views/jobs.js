// Batch jobs: how far they are, what came of them, and a form for new ones.

import { button } from "../actions.js";
import { choice, h, pairs, say, table } from "../dom.js";
import { jobStatus, seconds, when } from "../format.js";
import { listen, live } from "../live.js";
import { get } from "../api.js";
import { poll } from "../lists.js";

const EVERY_MS = 1000;

function state(job) {
  const [sign, text, tone] = jobStatus(job.state);
  return h("span", { class: tone }, `${sign} ${text}`);
}

function progress(job) {
  if (job.state !== "running") return job.state === "queued" ? job.waits : job.summary ?? job.reason;
  const left = job.left_s ? `${seconds(job.left_s[0])} to ${seconds(job.left_s[1])} left` : "time left unknown";
  return [
    h("progress", { max: 1, value: job.share ?? 0, "aria-label": `job ${job.id}` }),
    h("small", {}, ` ${Math.round(100 * (job.share ?? 0))} %${job.doing ? ` ${job.doing}` : ""}, ${left}`),
  ];
}

/** A row that stays while its job goes on, so that its button does not go away under a finger. */
function row(job) {
  const cells = { state: h("td"), progress: h("td"), buttons: h("td") };
  const node = h(
    "tr", { "data-job": job.id }, h("th", { scope: "row" }, h("a", { href: `#/jobs/${job.id}` }, `${job.id} ${job.kind}`),
      job.after.length > 0 && h("small", {}, ` after ${job.after.join(", ")}`)),
    h("td", {}, job.arm ?? ""), cells.state, cells.progress, cells.buttons,
  );
  const show = (now) => {
    cells.progress.replaceChildren(...[progress(now)].flat().filter(Boolean));
    if (node.dataset.state === now.state) return;
    node.dataset.state = now.state;
    cells.state.replaceChildren(state(now));
    const open = ["queued", "running"].includes(now.state);
    const again = ["failed", "cancelled"].includes(now.state);
    cells.buttons.replaceChildren(
      ...[
        open && button("Cancel", "cancel", () => ({ do: "cancel", id: now.id })),
        again && button("Retry", "retry", () => ({ do: "retry", id: now.id })),
      ].filter(Boolean),
    );
  };
  show(job);
  return { node, show };
}

function form() {
  const data = { kind: "identify", method: "wls" };
  const arms = live.session?.arms ?? [];
  data.arm = arms[0];
  const last = h("input", { name: "seconds", type: "number", min: 1, max: 3600, value: 60 });
  const span = h("input", { name: "span", placeholder: "0:0.6", size: 8, pattern: "[0-9.]+s?:[0-9.]+s?" });
  const files = h("select", { name: "recording" });
  const fill = async () => {
    const found = await get("/api/recordings").catch(() => ({ recordings: [] }));
    const own = found.recordings.filter((each) => each.arm === data.arm);
    files.replaceChildren(
      h("option", { value: "" }, "the last seconds"),
      ...own.map((each) => h("option", { value: `file:${each.name}` }, each.name)),
    );
  };
  fill();
  const submit = () => {
    if (data.kind === "reidentify") return { do: "reidentify", arm: data.arm };
    const action = { do: "identify", arm: data.arm, method: data.method, recording: files.value || `live:${Number(last.value)}` };
    return span.value.trim() ? { ...action, span: span.value.trim() } : action;
  };
  const one = h("div", { class: "row" },
    h("label", {}, "Recording", files), h("label", {}, "Seconds", last), h("label", {}, "Part", span),
    h("label", {}, "Method", choice("method", (live.session?.methods ?? ["wls"]).map((each) => [each, each]), "wls", (value) => { data.method = value; })));
  const kinds = [["identify", "identify: fit a model"], ["reidentify", "identify, validate, promote if better"]];
  return h(
    "div", { class: "card", id: "submit" }, h("h2", {}, "New job"),
    h("div", { class: "row" },
      h("label", {}, "Arm", choice("arm", arms.map((each) => [each, each]), data.arm, (value) => { data.arm = value; fill(); })),
      h("label", {}, "Job", choice("kind", kinds, data.kind, (value) => { data.kind = value; one.hidden = value !== "identify"; }))),
    one,
    h("div", { class: "row" }, button("Submit", "submit", submit)),
  );
}

/** What has been done of a job, is being done and is to come, as [tone, texts and links]; `seen` are steps seen before. */
function steps(job, jobs, seen) {
  const link = (id, also = "") => {
    const other = jobs.find((each) => each.id === id);
    return h("a", { href: `#/jobs/${id}` }, `job ${id}${other ? ` ${other.kind}, ${other.state}` : ""}${also}`);
  };
  const found = [["good", ["✓ submitted ", when(job.created)]]];
  if (job.after.length) found.push(["faint", ["↳ after ", ...job.after.flatMap((id, k) => [k ? ", " : "", link(id)])]]);
  if (job.state === "queued") found.push(["faint", [`○ ${job.waits || "waits"}`]]);
  if (job.started) found.push(["good", ["✓ started ", when(job.started), job.attempts > 1 ? `, attempt ${job.attempts}` : ""]]);
  for (const doing of seen) if (doing !== job.doing || job.state !== "running") found.push(["good", [`✓ ${doing}`]]);
  if (job.state === "running") found.push(["good", [`▶ ${job.doing || "at work"}, ${Math.round(100 * (job.share ?? 0))} %`]]);
  for (const part of job.parts ?? []) {
    const [sign, text, tone] = jobStatus(part.state);
    found.push([tone, [`${sign} part ${part.part + 1}: ${text}${part.reason ? `: ${part.reason}` : ""}`]]);
  }
  if (job.finished) {
    const [sign, text, tone] = jobStatus(job.state);
    found.push([tone, [`${sign} ${text} `, when(job.finished), `: ${job.summary ?? job.reason}`]]);
  }
  const next = jobs.filter((each) => each.after?.includes(job.id));
  if (next.length) found.push(["faint", ["↳ then ", ...next.flatMap((each, k) => [k ? ", " : "", link(each.id)])]]);
  return found;
}

function one(content, id) {
  // What changes is apart from what has buttons and may have the focus.
  const [facts, list, promote, parameters] = [h("div"), h("ol", { class: "steps" }), h("div"), h("div")];
  const log = h("pre", { tabindex: 0, role: "region", "aria-label": "Log" });
  const place = h("div", { class: "live" });
  content.append(h("h1", {}, `Job ${id}`), h("p", {}, h("a", { href: "#/jobs" }, "all jobs")), place);
  const seen = new Set();
  let jobs = [];
  let job = null;
  const show = () => {
    if (!job) return;
    if (!place.firstChild) {
      place.append(facts, h("h2", {}, "Steps"), list, promote, h("h2", {}, "Log"), log, h("h2", {}, "Parameters"), parameters);
    }
    if (job.doing) seen.add(job.doing);
    facts.replaceChildren(pairs([
      ["kind", job.kind], ["arm", job.arm ?? "–"], ["state", state(job)], ["progress", h("span", {}, progress(job))],
      job.outcome && ["verdict", job.outcome.verdict], job.results?.length && ["results", job.results.join(", ")],
    ]));
    list.replaceChildren(...steps(job, jobs, seen).map(([tone, texts]) => h("li", {}, h("span", { class: `${tone} step` }, texts))));
    if ((job.results ?? []).includes("model.yaml") && job.arm && !promote.firstChild) promote.append(promotion(job.arm, `job:${job.id}`));
    say(log, job.log || "(empty)");
    const given = Object.entries(job.parameters).filter(([, value]) => value !== null);
    parameters.replaceChildren(pairs(given.map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)])));
  };
  const stop = poll(`/api/jobs/${id}`, EVERY_MS, (found) => {
    job = found;
    show();
  });
  const stopOthers = poll("/api/jobs", 3 * EVERY_MS, (found) => {
    jobs = found.jobs;
    show();
  });
  return () => {
    stop();
    stopOthers();
  };
}

/** What makes a model the active one, if it is better on data that it was not fitted to. */
export function promotion(arm, model) {
  const last = h("input", { name: "promote-seconds", type: "number", min: 1, max: 3600, value: 30 });
  return h("div", { class: "row", "data-promote": model },
    h("label", {}, "Judged on the last seconds", last),
    button("Promote if better", "submit", () => ({ do: "promote", arm, model, recording: `live:${Number(last.value)}` })));
}

export function jobs(content, [id]) {
  if (/^\d+$/.test(id ?? "")) return one(content, id);
  const place = h("div");
  const [whole, body] = table("Newest first", [["job"], ["arm"], ["state"], ["progress"], ["do"]], { list: true });
  const note = h("p", { class: "bad" });
  content.append(h("h1", {}, "Jobs"), place, note, h("div", { class: "live" }, whole));
  let known = null;
  const formed = () => {
    if (live.session && live.session !== known) {
      known = live.session;
      if (!place.firstChild) place.replaceChildren(form());
    }
  };
  formed();
  const end = listen(formed);
  const rows = new Map();
  const stop = poll("/api/jobs", EVERY_MS, (found) => {
    note.textContent = found.trouble ? `⚠ No job runs now: ${found.trouble}` : "";
    const before = [...rows.keys()].join();
    for (const job of found.jobs) {
      if (rows.has(job.id)) rows.get(job.id).show(job);
      else rows.set(job.id, row(job));
    }
    const ids = found.jobs.map((job) => job.id);
    for (const id of rows.keys()) if (!ids.includes(id)) rows.delete(id);
    if (before !== [...rows.keys()].join()) body.replaceChildren(...ids.map((id) => rows.get(id).node));
    if (!found.jobs.length) body.replaceChildren(h("tr", {}, h("td", { colspan: 5 }, "There are no jobs yet.")));
  });
  return () => {
    end();
    stop();
  };
}
