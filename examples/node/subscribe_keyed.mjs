// Print live estimates of a daemon that asks for a key: node subscribe_keyed.mjs KEY_FILE [ENDPOINT] [ARM].
import { readFileSync } from "node:fs";
import { decode } from "@msgpack/msgpack";
import { Subscriber } from "zeromq";

const [path, endpoint = "tcp://127.0.0.1:9871", arm = "demo"] = process.argv.slice(2);
const key = Object.fromEntries([...readFileSync(path, "utf8").matchAll(/^ *([a-z-]+) *= *"([^"]*)"/gm)].map((m) => m.slice(1)));
const curve = { curveServerKey: key["server-key"], curvePublicKey: key["public-key"], curveSecretKey: key["secret-key"] };
const socket = new Subscriber(curve);
socket.connect(endpoint);
socket.subscribe(`${arm}/estimate`);
for await (const [, payload] of socket) {
  const { t, frames, lost, theta } = decode(payload);
  console.log(`${t.toFixed(3).padStart(9)} s  frames ${frames}  lost ${lost}  theta ${theta}`);
}
