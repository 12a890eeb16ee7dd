// A picture of the arm in its present pose: lines between its joints, from the kinematic chain of its description.

import { h, mark, svg } from "./dom.js";

const SIDE = 300; // of the drawing
const TILT = 0.35; // of the view from above [rad]
const DISC = 5; // of a joint
const GRID = [0.5, 1.0]; // radii on the floor, in reaches

const add = (a, b) => a.map((value, k) => value + b[k]);
const scale = (a, factor) => a.map((value) => factor * value);
const dot = (a, b) => a.reduce((sum, value, k) => sum + value * b[k], 0);
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => scale(a, 1 / Math.hypot(...a));
const row = (matrix, k) => matrix.slice(3 * k, 3 * k + 3);
const turn = (matrix, a) => [0, 1, 2].map((k) => dot(row(matrix, k), a));
const times = (a, b) => [0, 1, 2].flatMap((i) => [0, 1, 2].map((j) => dot(row(a, i), [b[j], b[3 + j], b[6 + j]])));

/**
 * Where the joints and the tip are, in the base frame: [{ at, axis, revolute }], the last one the tip.
 *
 * A row of `chain` has A0, A1, A2 (row by row), p, d, axis and 1 for a revolute joint: the rotation of a link in its
 * parent is A0 + cos(q) A1 + sin(q) A2, and its origin p + q d.  Ends before a joint without a position.
 */
export function places(chain, tip, q) {
  const found = [];
  let at = [0, 0, 0];
  let rotation = [1, 0, 0, 0, 1, 0, 0, 0, 1];
  for (const [j, link] of chain.entries()) {
    const value = q[j];
    if (value === null || value === undefined) return found;
    const part = (from, to) => link.slice(from, to);
    at = add(at, turn(rotation, add(part(27, 30), scale(part(30, 33), value))));
    const [constant, cosine, sine] = [part(0, 9), part(9, 18), part(18, 27)];
    rotation = times(rotation, constant.map((a, k) => a + Math.cos(value) * cosine[k] + Math.sin(value) * sine[k]));
    found.push({ at, axis: turn(rotation, part(33, 36)), revolute: link[36] === 1 });
  }
  found.push({ at: add(at, turn(rotation, tip)), axis: null, revolute: false });
  return found;
}

/** How far the arm reaches at most, so that the picture keeps its size as the arm moves. */
function reach(chain, tip) {
  const lengths = chain.map((link) => Math.hypot(...link.slice(27, 30)) + (link[36] === 1 ? 0 : 0.5));
  return lengths.reduce((sum, value) => sum + value, Math.hypot(...tip)) || 1;
}

/** Two directions on the floor and one up. */
function frame(gravity) {
  const up = Math.hypot(...gravity) > 0 ? unit(scale(gravity, -1)) : [0, 0, 1];
  const first = Math.abs(up[0]) < 0.9 ? [1, 0, 0] : [0, 1, 0];
  const east = unit(add(first, scale(up, -dot(first, up))));
  return [east, cross(up, east), up];
}

export class Pose {
  constructor() {
    this.azimuth = 0.6;
    this.floor = svg("g", { class: "floor" });
    this.shadow = svg("polyline", { class: "shadow" });
    this.links = svg("polyline", { class: "links" });
    this.joints = svg("g", {});
    this.drawing = svg(
      "svg", { class: "pose", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", "aria-label": "The arm in its present pose; positions are in the table" },
      this.floor, this.shadow, this.links, this.joints,
    );
    const turned = (event) => {
      this.azimuth = (Number(event.target.value) * Math.PI) / 180;
      this.show(...this.shown);
    };
    this.turner = h("label", { hidden: "" }, "Seen from [°]");
    mark(this.drawing, "hidden", "");
    const from = h("input", { type: "range", name: "azimuth", min: -180, max: 180, step: 5, value: 35, oninput: turned });
    this.note = h("figcaption", { class: "faint" }, "The picture comes with the robot's description and a frame with positions.");
    this.element = h("figure", { class: "chart" }, this.drawing, this.turner, this.note);
    this.turner.append(from);
    this.shown = [null, null];
  }

  /** Draw the arm at the positions `q`; `prior` has its chain, tip and gravity. */
  show(prior, q) {
    this.shown = [prior, q];
    if (!prior?.chain || !q) return;
    for (const node of [this.drawing, this.turner]) mark(node, "hidden", false);
    const size = reach(prior.chain, prior.tip);
    const axes = frame(prior.gravity);
    const [c, s] = [Math.cos(this.azimuth), Math.sin(this.azimuth)];
    const project = (at) => {
      const [x, y, z] = axes.map((axis) => dot(axis, at) / size);
      const [right, away] = [-s * x + c * y, c * x + s * y];
      const down = -z * Math.cos(TILT) + away * Math.sin(TILT);
      return [SIDE / 2 + 0.46 * SIDE * right, 0.56 * SIDE + 0.46 * SIDE * down].map((value) => value.toFixed(1));
    };
    const found = places(prior.chain, prior.tip, q);
    const points = [[0, 0, 0], ...found.map((each) => each.at)];
    const onFloor = (at) => add(at, scale(axes[2], -dot(axes[2], at)));
    const text = (ats) => ats.map((at) => project(at).join()).join(" ");
    mark(this.links, "points", text(points));
    mark(this.shadow, "points", text(points.map(onFloor)));
    this.floor.replaceChildren(...GRID.map((radius) => {
      const ring = Array.from({ length: 49 }, (_, k) => {
        const angle = (2 * Math.PI * k) / 48;
        return add(scale(axes[0], radius * size * Math.cos(angle)), scale(axes[1], radius * size * Math.sin(angle)));
      });
      return svg("polyline", { points: text(ring) });
    }));
    this.joints.replaceChildren(...found.map(({ at, axis, revolute }, j) => {
      const [x, y] = project(at);
      if (axis === null) return svg("circle", { class: "tip", cx: x, cy: y, r: DISC }, svg("title", {}, "flange"));
      const title = svg("title", {}, `joint ${j + 1}`);
      if (revolute) return svg("circle", { class: "joint", cx: x, cy: y, r: DISC }, title);
      return svg("rect", { class: "joint", x: x - DISC, y: y - DISC, width: 2 * DISC, height: 2 * DISC }, title);
    }));
    const short = found.length < prior.chain.length ? `, up to joint ${found.length + 1}, whose position is not known` : "";
    this.note.textContent = `Seen from the side at ${Math.round((this.azimuth * 180) / Math.PI)}°; outer ring ${size.toFixed(2)} m${short}`;
  }
}
