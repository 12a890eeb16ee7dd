// Buttons that change something: asked about where it matters, and what came of it said in words.

import { act, Refused } from "./api.js";
import { h, mark, say } from "./dom.js";
import { live, mayDo } from "./live.js";

const REASON = "your role does not allow this (daemon.http_role)";
const STOPS = ["abort", "disarm", "disable"];
const REFUSALS = [400, 401, 403, 404, 409, 413, 421, 429, 431]; // with others nobody knows what came of it
const OF_ARM = "See the arm's state.";
const SEE = { arm: OF_ARM, disarm: OF_ARM, abort: OF_ARM, disable: OF_ARM, record: "See the recorder's state.", rollback: "See Models." };

/** A button that does `action()` if its verb is allowed; `ask` is a question to be answered first. */
export function button(text, verb, action, { ask = "", kind = "", done = null } = {}) {
  const node = h("button", { type: "button", class: kind, "data-verb": verb }, text);
  node.addEventListener("click", async () => {
    if (ask && !window.confirm(ask)) return;
    if (STOPS.includes(verb)) return perform(text, action(), done);
    // One at a time: a second click asks for nothing twice, and a browser keeps lines free for a stop.
    under = text;
    refreshAll();
    try {
      await perform(text, action(), done);
    } finally {
      under = "";
      refreshAll();
    }
  });
  refresh(node);
  return node;
}

/** Do something, and say what came of it. */
export async function perform(text, action, done) {
  try {
    const answer = await act(action);
    tell(`${text}: ${describe(action, answer)}`, false);
    if (action.do === "arm") permits.set(action.arm, { text: answer.permit, untilMs: performance.now() + 1e3 * answer.for_s });
    if (STOPS.includes(action.do)) permits.delete(action.arm);
    done?.(answer);
  } catch (error) {
    if (error instanceof Refused && REFUSALS.includes(error.status)) tell(`${text}: refused: ${error.message}`, true);
    else tell(`${text}: no answer; it may have been done. ${SEE[action.do] ?? ""} (${error.message})`, true);
  }
}

let under = ""; // the button whose action is under way, but for stops
const permits = new Map(); // by arm: until they are used or have run out

/** The permit that arming from this page gave, while it is of use; null without. */
export function permitOf(arm) {
  const found = permits.get(arm.name);
  if (!found) return null;
  const armed = arm.safety?.state === "armed";
  found.seen ||= armed; // the answer may come before the state
  if (performance.now() > found.untilMs || (found.seen && !armed)) permits.delete(arm.name);
  return permits.get(arm.name)?.text ?? null;
}

function describe(action, answer) {
  if (action.do === "arm") return `the drives are on; permit ${answer.permit} for ${Math.round(answer.for_s)} s, for \`thetad run\``;
  if (answer.ids) return `jobs ${answer.ids.join(", ")} are queued`;
  if (action.do === "rollback") return `active is ${answer.active ? answer.active.slice(0, 12) : "no model"}`;
  if (answer.id && answer.kind) return `job ${answer.id} ${answer.kind}${answer.state ? ` is ${answer.state}` : " is queued"}`;
  if (answer.state) return `the arm is ${answer.state}${answer.reason ? `: ${answer.reason}` : ""}`;
  return "done";
}

/** Say something at the top of the page. */
export function tell(text, refused) {
  const node = document.getElementById("said");
  node.hidden = false;
  node.classList.toggle("refused", refused);
  say(node, text);
}

/** Let buttons be pressed if what they do is allowed, and somebody is there to do it. */
export function refresh(node) {
  const verb = node.dataset.verb;
  const allowed = live.session?.allowed.includes(verb) ?? false;
  const waits = under && !STOPS.includes(verb) ? `${under} is under way` : "";
  mark(node, "disabled", mayDo(verb) && !waits ? false : "");
  mark(node, "title", (live.connected && !allowed ? REASON : waits) || false);
}

export function refreshAll() {
  for (const node of document.querySelectorAll("button[data-verb]")) refresh(node);
}
