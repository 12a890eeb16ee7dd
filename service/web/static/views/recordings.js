// Recordings that the recorders have made, and the recorders themselves.

import { button } from "../actions.js";
import { h, pairs, say, table } from "../dom.js";
import { bytes, when } from "../format.js";
import { listen, live } from "../live.js";
import { poll } from "../lists.js";

const EVERY_MS = 2000;

export function recordings(content) {
  const recorders = h("div", { class: "cards live" });
  const [whole, body] = table("Newest first", [["recording"], ["arm"], ["size", "number"], ["last written"], ["do"]], { list: true });
  content.append(h("h1", {}, "Recordings"), recorders, h("h2", {}, "Files"), h("div", { class: "live" }, whole));
  let cards = {};
  const showRecorders = () => {
    const found = (live.fleet?.arms ?? []).filter((arm) => arm.recorder);
    if (found.map((arm) => arm.name).join() !== Object.keys(cards).join() || !recorders.firstChild) {
      cards = Object.fromEntries(found.map(({ name }) => [name, h("div")]));
      recorders.replaceChildren(...found.map(({ name }) => h(
        "section", { class: "card", "data-recorder": name }, h("h2", {}, name), cards[name],
        h("div", { class: "row" },
          button("Record", "record", () => ({ do: "record", arm: name, action: "start" })),
          button("Stop recording", "record", () => ({ do: "record", arm: name, action: "stop" }))),
      )));
      if (!found.length) recorders.replaceChildren(h("p", {}, "No arm has a recorder: add [arm.recorder] to its configuration."));
    }
    for (const { name, recorder } of found) {
      const on = ["on", "recording"].includes(recorder.state);
      cards[name].replaceChildren(pairs([
        ["state", h("span", { class: on ? "good" : "faint" }, `${on ? "●" : "○"} ${recorder.state}`)],
        ["file", recorder.file || "–"], ["frames", recorder.written], ["written", bytes(recorder.bytes)],
        recorder.error && ["error", h("span", { class: "bad" }, `✕ ${recorder.error}`)],
      ]));
    }
  };
  showRecorders();
  const end = listen((changed) => changed.has("fleet") && showRecorders());
  const stop = poll("/api/recordings", EVERY_MS, (found) => {
    body.replaceChildren(...found.recordings.map((each) => h(
      "tr", {}, h("th", { scope: "row" }, each.name), h("td", {}, each.arm), h("td", { class: "number" }, bytes(each.bytes)),
      h("td", {}, when(each.changed)),
      h("td", {}, button("Identify", "submit", () => ({ do: "identify", arm: each.arm, recording: `file:${each.name}` }))),
    )));
    if (!found.recordings.length) body.append(h("tr", {}, h("td", { colspan: 5 }, "There are no recordings yet.")));
  });
  return () => {
    end();
    stop();
  };
}
