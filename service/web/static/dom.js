// Elements of the page.  Text is set as text alone: nothing that comes from elsewhere is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";
// What a table's parts are, for screen readers: without these a table that is folded is none to them.
const ROLES = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };

/** Make an element; attributes that begin with "on" are listeners, false and null are left out. */
export function h(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  const role = ROLES[node.nodeName] ?? (name === "th" ? (attributes.scope === "col" ? "columnheader" : "rowheader") : null);
  if (role) node.setAttribute("role", role);
  return fill(node, attributes, children);
}

/** The same within a drawing. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set the text of a node, if it is another: twenty times a second most are not. */
export function say(node, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Set an attribute, if it is another. */
export function mark(node, name, value) {
  if (value === false || value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/**
 * A table with its head and an empty body: [element, body].  On a narrow screen the head is left out, the rows of a list
 * wrap, and those of a table that folds are a block with a line for each two cells: what cells hold must be plain by
 * itself, or have a data-label.
 */
export function table(caption, columns, { list = false, fold = false } = {}) {
  const body = h("tbody");
  const head = columns.map(([text, kind]) => h("th", { scope: "col", class: kind }, text));
  const whole = h("table", { class: list ? "list" : fold && "fold" }, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), body);
  return [h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, whole), body];
}

/** Pairs of a name and a text that changes: [element, a function that takes the texts, null for a pair left out]. */
export function changingPairs(names) {
  const rows = names.map((name) => [h("dt", {}, name), h("dd")]);
  const show = (texts) => rows.forEach(([term, value], k) => {
    const none = texts[k] === null || texts[k] === undefined;
    mark(term, "hidden", none && "");
    mark(value, "hidden", none && "");
    say(value, texts[k]);
  });
  return [h("dl", {}, rows.flat()), show];
}

/** Pairs of a name and what is said of it. */
export function pairs(entries) {
  return h("dl", {}, entries.filter(Boolean).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** A choice of some texts. */
export function choice(name, values, chosen, onchange) {
  const options = values.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("select", { name, onchange: (event) => onchange?.(event.target.value) }, options);
}

/** A bar of a share from 0 to 1. */
export function bar(share) {
  const width = Math.max(0, Math.min(1, share)) * 100;
  return svg(
    "svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { width: width.toFixed(2), height: 10 }),
  );
}
