// The frame of the page: which view is shown, whether the daemon is there, and what is wrong.

import { refreshAll } from "./actions.js";
import { setToken } from "./api.js";
import { h, mark, say } from "./dom.js";
import { clock } from "./format.js";
import { follow, listen, live, look, silence } from "./live.js";
import { arm } from "./views/arm.js";
import { events } from "./views/events.js";
import { fleet, warnings } from "./views/fleet.js";
import { jobs } from "./views/jobs.js";
import { models } from "./views/models.js";
import { recordings } from "./views/recordings.js";

const VIEWS = { "": fleet, arm, jobs, models, recordings, events };
const NAMES = [["", "Fleet"], ["jobs", "Jobs"], ["models", "Models"], ["recordings", "Recordings"], ["events", "Events"]];
const LOST_S = 3.0; // so long without an answer, and what is shown is old

const content = document.getElementById("content");
const nav = document.getElementById("nav");
let leave = () => {};

/** Show the view that the address names: #/arm/NAME/friction. */
function route() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  const words = location.hash.slice(2).split("/").map(decoded);
  const view = VIEWS[words[0]] ?? fleet;
  leave();
  document.getElementById("said").hidden = true;
  content.replaceChildren();
  look(view === arm ? words[1] ?? "" : "");
  leave = view(content, words.slice(1)) ?? (() => {});
  nav.replaceChildren(
    ...NAMES.map(([name, text]) => h("a", { href: `#/${name}`, "aria-current": name === words[0] && "page" }, text)),
  );
  document.title = `thetad: ${content.querySelector("h1")?.textContent ?? ""}`;
  refreshAll();
}

function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return ""; // no name at all
  }
}

/** Say whether the daemon is there; what it said last is old if it is not. */
function showLink() {
  const lost = !live.connected || silence() > LOST_S;
  const banner = document.getElementById("lost");
  const link = document.getElementById("link");
  if (lost && live.connected) {
    live.connected = false;
    refreshAll();
  }
  document.body.classList.toggle("lost", lost && live.heard !== null);
  const needed = live.needsToken;
  mark(banner, "hidden", lost && (live.heard !== null || needed || silence() < Infinity) ? false : "");
  if (needed) askForToken(banner);
  else if (lost && live.heard !== null) {
    say(banner, `✕ No connection to the daemon. Values are from ${clock(live.heard)}.`);
  }
  say(link, lost ? "✕ not connected" : `● connected, ${live.session?.role ?? ""}`);
  say(document.getElementById("clock"), lost ? "" : `, ${clock(live.heard)}`); // apart, so that nobody has to hear it
}

function askForToken(banner) {
  const why = banner.querySelector("[data-why]");
  if (why) {
    if (live.tokenRefused) say(why, "The daemon does not know that token. ");
    return;
  }
  const field = h("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Token" });
  const send = (event) => {
    event.preventDefault();
    live.tokenRefused = false;
    if (setToken(field.value.trim())) banner.replaceChildren();
    else say(banner.querySelector("[data-why]"), "That is no token: it has letters, digits and ._~+/=- only. ");
  };
  const said = h("span", { "data-why": true }, live.tokenRefused ? "The daemon does not know that token. " : "");
  banner.replaceChildren("This daemon asks for a token. ", said, h("form", { class: "row", onsubmit: send }, field, h("button", {}, "Sign in")));
}

function showAlarms() {
  const { fleet: found } = live;
  if (!found) return;
  say(document.getElementById("daemon"), found.name ? ` ${found.name}` : "");
  const texts = [];
  const mild = new Set(); // of the texts those that are warnings
  if (found.stopping) texts.push("The daemon is stopping.");
  else if (found.trouble) texts.push(`The daemon: ${found.trouble}.`);
  for (const each of found.arms) {
    for (const problem of each.problems) texts.push(`${each.name}: ${problem}`);
    for (const warning of warnings(each)) mild.add(texts[texts.push(`${each.name}: ${warning}`) - 1]);
  }
  if (found.jobs.trouble) texts.push(`Jobs: ${found.jobs.trouble}`);
  const list = document.getElementById("alarms");
  const shown = [...list.children].map((each) => each.textContent);
  const wanted = texts.map((text) => `⚠ ${text}`);
  if (shown.join("\n") !== wanted.join("\n")) list.replaceChildren(...texts.map((text) => h("li", { class: mild.has(text) && "warn" }, `⚠ ${text}`)));
  list.hidden = texts.length === 0;
  // Spoken when something else is wrong, not each time that it has been so for longer.
  const heard = texts.map((text) => text.replace(/[0-9.]+/g, "")).join("; ");
  const alarmed = document.getElementById("alarmed");
  if (alarmed.dataset.heard !== heard) say(alarmed, texts.join("; "));
  alarmed.dataset.heard = heard;
}

listen((changed) => {
  if (changed.has("renewed") && live.arm) route(); // what the view shows is another daemon's
  if (changed.has("fleet")) showAlarms();
  if (changed.has("link")) {
    refreshAll();
    showLink();
  }
});
setInterval(showLink, 500);
document.getElementById("skip").addEventListener("click", () => content.focus());
window.addEventListener("hashchange", () => {
  route();
  content.focus({ preventScroll: true });
});
route();
follow();
