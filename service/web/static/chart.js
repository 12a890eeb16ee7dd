// Charts by uPlot, told apart by colour and by line: no line is known by its colour alone.

import { h } from "./dom.js";

const DASHES = [[], [10, 4], [2, 3], [10, 3, 2, 3], [16, 4], [5, 3], [1, 2], [14, 3, 4, 3, 4, 3]];
const HEIGHT = 210;

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Colour and line of the series of that number. */
export function line(k) {
  return { stroke: () => ink(`--c${k % 8}`), dash: DASHES[(k + 3 * Math.floor(k / 8)) % 8], width: 2 };
}

/** An edge of a band: drawn faintly, not listed. */
export function edge() {
  return { stroke: () => ink("--faint"), width: 1, dash: [2, 3], class: "edge" };
}

function exponents(plot, splits) {
  return splits.map((value) => (value === null ? null : value.toExponential(0)));
}

/**
 * A chart that fits the width of its place.
 *
 * `series` are maps of uPlot, each with a label; `bands` are pairs of numbers of series from 1, the upper one first; with
 * `log` the axis of values is logarithmic.
 */
export class Chart {
  constructor(title, xLabel, yLabel, series, { bands = [], log = false } = {}) {
    this.place = h("div");
    this.caption = h("figcaption", {}, title);
    this.element = h("figure", { class: "chart" }, this.caption, this.place);
    const axis = (label, size) => ({
      label, size, labelSize: 18, stroke: () => ink("--ink"), grid: { stroke: () => ink("--line"), width: 0.5 },
      ticks: { stroke: () => ink("--line"), width: 0.5 }, font: "12px system-ui", labelFont: "12px system-ui",
    });
    this.options = {
      width: 300, height: HEIGHT, series: [{ label: xLabel }, ...series.map((each) => ({ spanGaps: false, points: { show: false }, ...each }))],
      bands: bands.map((pair) => ({ series: pair, fill: () => ink("--band") })),
      scales: { x: { time: false }, ...(log ? { y: { distr: 3 } } : {}) },
      axes: [axis(xLabel, 34), { ...axis(yLabel, 62), ...(log ? { values: exponents } : {}) }],
      legend: { live: false, markers: { dash: (plot, k) => (plot.series[k].dash?.length ? "dashed" : "solid"), width: 3 } },
      cursor: { show: false }, padding: [8, 10, 0, 0],
    };
    this.data = [[], ...series.map(() => [])];
    this.plot = null;
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.place);
    this.recolour = () => { // anew, for the legend keeps its colours
      this.plot?.destroy();
      this.plot = null;
      this.fit();
    };
    document.addEventListener("theme", this.recolour);
  }

  fit() {
    const width = Math.floor(this.place.clientWidth);
    if (width < 50) return;
    if (this.plot === null) {
      this.plot = new window.uPlot({ ...this.options, width }, this.data, this.place);
      this.plot.root.setAttribute("role", "img");
      this.plot.root.setAttribute("aria-label", this.caption.textContent);
    } else if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
  }

  show(data) {
    this.data = data;
    this.plot?.setData(data);
  }

  end() {
    this.watch.disconnect();
    document.removeEventListener("theme", this.recolour);
    this.plot?.destroy();
    this.plot = null;
  }
}
