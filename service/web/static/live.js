// The present, as the daemon tells it: the newest of each section, asked for again and again.
//
// The next question is put when the last answer has been taken, so that a slow browser or line gets fewer answers and
// always the newest.  While nobody sees the page nothing is asked.

import { dropToken, get, Refused } from "./api.js";
import { History } from "./history.js";

const WITHIN_MS = 4000; // the daemon answers within a second, also if nothing has changed
const AGAIN_MS = 700;

export const live = {
  session: null, // who we are and what we may do
  fleet: null,
  arm: "",
  facts: null, // names and units of the arm's estimate
  prior: null,
  sections: {}, // of the arm
  history: new History(),
  connected: false,
  heard: null, // Date of the last answer
  needsToken: false,
  tokenRefused: false, // the last one that was given
};

const listeners = new Set();
let turn = 0;
let epoch = 0;
let now = 0; // the daemon's clock in the last answer [s]
let heardMs = 0;
let asking = null;
let timesAsked = 0;

/** Have a function called with the names of what has changed; returns what ends that. */
export function listen(call) {
  listeners.add(call);
  return () => listeners.delete(call);
}

function tell(changed) {
  for (const call of listeners) call(changed);
}

/** Seconds since a moment of the daemon's clock. */
export function age(at) {
  return at ? now - at + (performance.now() - heardMs) / 1e3 : null;
}

/** Seconds since the last answer. */
export function silence() {
  return live.heard === null ? Infinity : (performance.now() - heardMs) / 1e3;
}

/** How many answers have been taken. */
export function answers() {
  return timesAsked;
}

/** Look at an arm; "" for none. */
export function look(arm) {
  if (live.arm === arm) return;
  Object.assign(live, { arm, facts: null, prior: null, sections: {}, history: new History() });
  turn = 0;
  asking?.abort();
}

export function mayDo(verb) {
  return live.connected && Boolean(live.session?.allowed.includes(verb));
}

export async function follow() {
  for (;;) {
    if (document.hidden) await shown();
    const arm = live.arm;
    asking = new AbortController();
    try {
      if (live.session === null) live.session = await get("/api/session", { withinMs: WITHIN_MS });
      const query = new URLSearchParams({ arm, epoch, since: turn });
      const said = await get(`/api/now?${query}`, { signal: asking.signal, withinMs: WITHIN_MS });
      if (arm === live.arm) take(said);
      await learn();
    } catch (error) {
      if (arm !== live.arm) continue; // we broke it off ourselves
      if (arm && error instanceof Refused && error.status === 400) {
        look(""); // there is no such arm, which its page says
        continue;
      }
      lose(error);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}

function take(said) {
  const back = !live.connected;
  const renewed = epoch !== 0 && said.epoch !== epoch;
  if (said.epoch !== epoch) {
    // Another daemon, perhaps on another computer, whose clock began elsewhere: nothing of the one before has an age.
    live.history.clear();
    Object.assign(live, { sections: {}, facts: null, prior: null });
  }
  ({ turn, epoch, now } = said);
  heardMs = performance.now();
  timesAsked += 1;
  live.heard = new Date();
  Object.assign(live, { connected: true, needsToken: false, tokenRefused: false });
  if (said.fleet) live.fleet = said.fleet;
  if (renewed) tell(new Set(["renewed"]));
  const { estimate, torque, signals } = said;
  for (const name of ["estimate", "standing", "torque", "signals", "bus"]) if (said[name]) live.sections[name] = said[name];
  if (estimate) live.history.estimates.add(estimate);
  if (torque) live.history.torques.add(torque);
  if (signals) live.history.signals.add(signals);
  tell(new Set(back ? ["link", ...Object.keys(said)] : Object.keys(said)));
}

/** What the estimate is of, by its hash; told also while there is no estimate yet. */
function estimated() {
  return live.sections.estimate?.hash ?? live.fleet?.arms.find((arm) => arm.name === live.arm)?.hash;
}

/** Get names and units where the estimate is of others than those known. */
async function learn() {
  const hash = estimated();
  if (!hash || hash === live.facts?.hash) return;
  const arm = live.arm;
  let facts;
  try {
    facts = await get(`/api/arms/${encodeURIComponent(arm)}`);
  } catch (error) {
    if (error instanceof Refused && error.status === 503) return; // the estimator will say in a second
    throw error;
  }
  if (arm !== live.arm || facts.hash !== estimated()) return;
  live.history.clear();
  live.facts = facts;
  tell(new Set(["facts"]));
}

/** Get what the robot's description says; asked for by views that show it. */
export async function askPrior() {
  const arm = live.arm;
  const prior = await get(`/api/arms/${encodeURIComponent(arm)}/prior`);
  if (arm !== live.arm) return;
  live.prior = prior;
  tell(new Set(["prior"]));
}

/** Return what gets it where the estimate belongs to another; called again and again, it asks once at a time. */
export function priorKeeper() {
  let asked = false;
  return async () => {
    if (asked || !live.connected || !live.facts || live.prior?.hash === live.facts.hash) return;
    asked = true;
    await askPrior().catch(() => {}); // asked again soon
    asked = false;
  };
}

function lose(error) {
  live.connected = false;
  live.session = null; // the next daemon may allow something else
  live.needsToken = error instanceof Refused && error.status === 401;
  if (live.needsToken && dropToken()) live.tokenRefused = true;
  tell(new Set(["link"]));
}

function shown() {
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
  });
}
