// Lists that are asked for anew while they are shown.

import { get } from "./api.js";
import { say } from "./dom.js";
import { live } from "./live.js";

/** Say what is wrong with a list, apart from what came of buttons. */
function complain(text) {
  const node = document.getElementById("unlisted");
  node.hidden = text === "";
  say(node, text);
}

/** Ask for `path` every so often and give the answer to `show`; returns what ends that. */
export function poll(path, everyMs, show) {
  let ended = false;
  let before = "";
  const again = async () => {
    if (ended) return;
    if (!document.hidden && live.connected) {
      try {
        const found = await get(path);
        const text = JSON.stringify(found);
        if (!ended && text !== before) show(found);
        before = text;
        if (!ended) complain("");
      } catch (error) {
        if (!ended && live.connected) complain(`⚠ This list is not to be had now: ${error.message}`);
      }
    }
    if (!ended) setTimeout(again, live.connected ? everyMs : 300);
  };
  again();
  return () => {
    ended = true;
    complain("");
  };
}
