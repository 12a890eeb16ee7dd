// Batch jobs: how far they are, what came of them, and a form for new ones.

import { button } from "../actions.js";
import { choice, h, pairs, table } from "../dom.js";
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
    "tr", { "data-job": job.id }, h("th", { scope: "row" }, h("a", { href: `#/jobs/${job.id}` }, `${job.id} ${job.kind}`)),
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

function one(content, id) {
  const place = h("div", { class: "live" });
  content.append(h("h1", {}, `Job ${id}`), h("p", {}, h("a", { href: "#/jobs" }, "all jobs")), place);
  return poll(`/api/jobs/${id}`, EVERY_MS, (job) => {
    const made = (job.results ?? []).includes("model.yaml") && job.arm;
    place.replaceChildren(
      pairs([
        ["kind", job.kind], ["arm", job.arm ?? "–"], ["state", state(job)], ["progress", h("span", {}, progress(job))],
        ["submitted", when(job.created)], job.started && ["started", when(job.started)], job.finished && ["finished", when(job.finished)],
        ["parameters", Object.entries(job.parameters).filter(([, value]) => value !== null).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(" ")],
        job.outcome && ["verdict", job.outcome.verdict], job.results?.length && ["results", job.results.join(", ")],
      ]),
      ...(made ? [promotion(job.arm, `job:${job.id}`)] : []),
      h("h2", {}, "Log"), h("pre", { tabindex: 0 }, job.log || "(empty)"),
    );
  });
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
