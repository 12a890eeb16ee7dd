// Print live estimates: npm ci, then node subscribe_plain.mjs [ENDPOINT] [ARM].
import { decode } from "@msgpack/msgpack";
import { Subscriber } from "zeromq";

const [endpoint = "tcp://127.0.0.1:9871", arm = "demo"] = process.argv.slice(2);
const socket = new Subscriber();
socket.connect(endpoint);
socket.subscribe(`${arm}/estimate`);
for await (const [, payload] of socket) {
  const { t, frames, lost, theta } = decode(payload);
  console.log(`${t.toFixed(3).padStart(9)} s  frames ${frames}  lost ${lost}  theta ${theta}`);
}
