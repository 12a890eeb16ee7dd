// Questions to the daemon.  The token, where one is asked for, stays in this tab: other sites and other ports of this
// computer never see it.

const KEY = "thetad-token";
const ANSWER_MS = 150_000;
const READ_MS = 30_000; // longer than the daemon itself waits for what it has to ask for
const TOKEN = /^[A-Za-z0-9._~+/=-]+$/; // all that a header may hold

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Keep a token; false if it cannot be one. */
export function setToken(token) {
  if (!TOKEN.test(token)) return false;
  sessionStorage.setItem(KEY, token);
  return true;
}

/** Forget the token, which is not good; whether there was one. */
export function dropToken() {
  const had = sessionStorage.getItem(KEY) !== null;
  sessionStorage.removeItem(KEY);
  return had;
}

async function request(path, options, withinMs) {
  const headers = { ...options.headers };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  const signals = [AbortSignal.timeout(withinMs), options.signal].filter(Boolean);
  const response = await fetch(path, {
    ...options, headers, signal: AbortSignal.any(signals), cache: "no-store", credentials: "omit", redirect: "error",
  });
  const said = await response.json();
  if (!response.ok) throw new Refused(response.status, said.error ?? `HTTP ${response.status}`);
  return said;
}

export function get(path, { signal, withinMs = READ_MS } = {}) {
  return request(path, { signal }, withinMs);
}

/** Do one of the things that may be done; what it is stands in `action`. */
export function act(action) {
  const headers = { "Content-Type": "application/json", "X-Thetad": "1" };
  return request("/api/do", { method: "POST", headers, body: JSON.stringify(action) }, ANSWER_MS);
}
