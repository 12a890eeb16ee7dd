"""Draw what the pages show: a line `<!-- drawing: NAME -->` of a page becomes the drawing of that name, as SVG.

`python -m docs._drawings` writes the drawings that the code host shows to docs/images; `make docs` fails where they are
not up to date.
"""

import html
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mkdocs.exceptions import PluginError

DOCS = Path(__file__).resolve().parent
PLACE = re.compile(r"<!-- drawing: ([\w-]+) -->")
#: Drawings that README.md shows, too.
COMMITTED = ("data-path",)
_BLUE, _GREEN, _ORANGE, _GREY = "#3b82c4", "#2f9e6e", "#d97a1f", "#808890"
_LETTER, _SMALL, _PAD = 7.6, 6.4, 12
_BOX, _ROW, _MARGIN = 36, 14, 14
#: A committed drawing brings its colours, for light and for dark; in a page it takes those of the page.
_STYLE = """<style>
svg { color: #1f2328; --md-default-bg-color: #fff } .paper { fill: #fff }
@media (prefers-color-scheme: dark) { svg { color: #e6edf3; --md-default-bg-color: #0d1117 } .paper { fill: #0d1117 } }
</style><rect class="paper" width="100%" height="100%" rx="8"/>"""


class Flow(NamedTuple):
    """Boxes in columns, with arrows between them.

    A box is its first line; what follows a `|` is a second, smaller line; an empty one is a gap.  A colour belongs to a
    column.  An arrow is (from, to, label); one to a column before goes below all boxes, dashed.
    """

    label: str
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    arrows: tuple[tuple[str, str, str], ...]


FLOWS = {
    "data-path": Flow(
        "Data path: sources, acquisition, ZeroMQ, estimator, recorder and jobs, clients",
        (
            (_GREY, ("EtherCAT drives", "TwinCAT PLC", "recording", "simulated arm")),
            (_BLUE, ("acquisition|driver, 1 kHz",)),
            (_BLUE, ("recorder|MCAP files", "batch jobs|identify, validate", "estimator|parameters, drift")),
            (_BLUE, ("gateway|ZeroMQ", "web|HTTP", "validated model")),
            (_GREY, ("thetad watch", "your program", "dashboard")),
        ),
        (
            ("EtherCAT drives", "acquisition", ""), ("TwinCAT PLC", "acquisition", ""),
            ("recording", "acquisition", ""), ("simulated arm", "acquisition", ""),
            ("acquisition", "recorder", "ZeroMQ"), ("acquisition", "estimator", ""),
            ("estimator", "gateway", ""), ("recorder", "batch jobs", ""), ("batch jobs", "validated model", ""),
            ("estimator", "web", ""), ("gateway", "thetad watch", ""), ("gateway", "your program", ""),
            ("web", "dashboard", ""), ("validated model", "estimator", "drift is judged against the active model"),
        ),
    ),
    "log-to-model": Flow(
        "From a robot file by a motion, a log, import, identification and validation to a model",
        (
            (_GREY, ("my_arm.toml|or a URDF",)), (_BLUE, ("thetad excite|a motion",)),
            (_GREY, ("your controller|log.csv",)), (_BLUE, ("thetad import|rec.mcap",)),
            (_BLUE, ("thetad identify|first 60 %", "thetad validate|last 40 %")), (_GREEN, ("model.yaml",)),
        ),
        (
            ("my_arm.toml", "thetad excite", ""), ("thetad excite", "your controller", ""),
            ("your controller", "thetad import", ""), ("thetad import", "thetad identify", ""),
            ("thetad import", "thetad validate", ""), ("thetad identify", "model.yaml", ""),
            ("model.yaml", "thetad validate", "is it right?"),
        ),
    ),
    "processes": Flow(
        "Processes of a daemon: supervisor; for each arm acquisition, estimator, recorder; jobs, gateway, web",
        (
            (_ORANGE, ("supervisor|starts, watches, restarts",)),
            (_BLUE, ("acquisition|one per arm", "jobs|runs in processes of their own")),
            (_BLUE, ("estimator|one per arm", "recorder|one per arm")),
            (_GREEN, ("gateway|frames, estimates: TCP", "web|dashboard, metrics: HTTP")),
        ),
        (
            ("supervisor", "acquisition", "requests"), ("supervisor", "jobs", ""),
            ("acquisition", "estimator", "frames"), ("acquisition", "recorder", ""),
            ("estimator", "gateway", ""), ("estimator", "web", ""),
        ),
    ),
    "run-states": Flow(
        "States of an arm: disarmed, arming, armed, approach, running, stopping, disarmed",
        (
            (_GREY, ("disarmed|drives off",)), (_BLUE, ("arming",)), (_BLUE, ("armed|drives hold",)),
            (_GREEN, ("approach", "guiding|by hand")), (_GREEN, ("running", "")),
            (_ORANGE, ("stopping|brakes to rest",)),
        ),
        (
            ("disarmed", "arming", "arm"), ("arming", "armed", "permit"), ("armed", "approach", "heartbeat"),
            ("armed", "guiding", ""), ("approach", "running", ""), ("running", "stopping", "end, abort"),
            ("guiding", "stopping", ""), ("stopping", "disarmed", "every stop disarms the arm and gives the reason"),
        ),
    ),
    "job-states": Flow(
        "States of a job: queued, running, then succeeded, failed or cancelled",
        (
            (_GREY, ("queued|on disk",)), (_BLUE, ("running|a process of its own",)),
            (_GREEN, ("succeeded", "failed|after 3 attempts", "cancelled")),
        ),
        (
            ("queued", "running", ""), ("running", "succeeded", ""), ("running", "failed", ""),
            ("running", "cancelled", ""), ("running", "queued", "worker or daemon killed"),
        ),
    ),
    "ethercat": Flow(
        "EtherCAT: acquisition, network card, drives in a line; simulated drives take their place in a rehearsal",
        (
            (_BLUE, ("acquisition|EtherCAT master",)), (_GREY, ("network card", "thetad0|virtual cable")),
            (_GREEN, ("drive 1|CiA 402", "thetad sim ethercat|simulated drives")), (_GREEN, ("drive 2 ...", "")),
        ),
        (
            ("acquisition", "network card", "real arm"), ("acquisition", "thetad0", "rehearsal"),
            ("network card", "drive 1", ""), ("drive 1", "drive 2 ...", ""), ("thetad0", "thetad sim ethercat", ""),
        ),
    ),
    "twincat": Flow(
        "TwinCAT: the PLC samples the axes into a ring, thetad reads the ring by ADS and writes set positions ahead",
        (
            (_GREY, ("axes",)), (_GREEN, ("PLC|samples each cycle",)), (_GREEN, ("ring|0.64 s", "set positions|ahead")),
            (_BLUE, ("acquisition|ADS over TCP",)),
        ),
        (
            ("axes", "PLC", ""), ("PLC", "ring", ""), ("ring", "acquisition", "blocks"),
            ("acquisition", "set positions", "ADS"), ("set positions", "PLC", "each for a numbered cycle"),
        ),
    ),
    "estimator": Flow(
        "Online estimator: frames, one grid, filters of one delay, rows, update, parameters, checks",
        (
            (_GREY, ("frames|1 kHz",)), (_BLUE, ("uniform grid",)), (_BLUE, ("filters|one delay",)),
            (_BLUE, ("rows|Y and torque",)), (_GREEN, ("update|100 a second",)),
            (_ORANGE, ("estimate", "drift, change")),
        ),
        (
            ("frames", "uniform grid", ""), ("uniform grid", "filters", ""), ("filters", "rows", ""),
            ("rows", "update", ""), ("update", "estimate", ""), ("update", "drift, change", ""),
        ),
    ),
    "recordings": Flow(
        "Recordings: logs are imported with a mapping; recordings are read by commands and exported for other programs",
        (
            (_GREY, ("CSV, NPZ, HDF5|MATLAB, Parquet", "ROS 2 bag", "recorder|of a daemon")),
            (_BLUE, ("thetad import|mapping: units, signs", "", "")),
            (_GREEN, ("recording.mcap|joint side, SI units",)),
            (_GREY, ("identify, validate", "Foxglove, PlotJuggler", "ROS 2")),
        ),
        (
            ("CSV, NPZ, HDF5", "thetad import", ""), ("ROS 2 bag", "thetad import", ""),
            ("thetad import", "recording.mcap", ""), ("recorder", "recording.mcap", ""),
            ("recording.mcap", "identify, validate", ""), ("recording.mcap", "Foxglove, PlotJuggler", ""),
            ("recording.mcap", "ROS 2", ""),
        ),
    ),
}  # fmt: skip


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with its drawings in their places."""
    unknown = [name for name in PLACE.findall(markdown) if name not in drawings()]
    if unknown:
        raise PluginError(f"{page.file.src_uri}: no drawing is called {', '.join(unknown)}")
    return PLACE.sub(lambda match: drawings()[match[1]], markdown)


def on_pre_build(**_: Any) -> None:
    """Refuse committed drawings that are not those of this file."""
    if old := [n for n in COMMITTED if (DOCS / "images" / f"{n}.svg").read_text(encoding="utf-8") != committed(n)]:
        raise PluginError(f"docs/images: {', '.join(old)}.svg is not up to date: python -m docs._drawings")


def drawings() -> dict[str, str]:
    """Return all drawings by name."""
    return {
        **{name: _flow(flow) for name, flow in FLOWS.items()},
        "dh-modified": _dh("modified (Craig) DH", ("alpha", "a", "theta", "d")),
        "dh-standard": _dh("standard DH", ("theta", "d", "a", "alpha")),
        "panda-frames": _chain("franka_panda", (0.0, -0.5, 0.0, -2.0, 0.0, 1.8, 0.8)),
        "elastic-joint": _elastic(),
    }


def committed(name: str) -> str:
    """Return a drawing as a file of its own."""
    start, end = drawings()[name].split(">", 1)
    return f'{start} xmlns="http://www.w3.org/2000/svg">{_STYLE}{end}\n'


def _svg(label: str, width: float, height: float, parts: list[str], corner: tuple[float, float] = (0.0, 0.0)) -> str:
    view = f"{corner[0]:.0f} {corner[1]:.0f} {width:.0f} {height:.0f}"
    return (
        f'<svg role="img" aria-label="{html.escape(label)}" viewBox="{view}" width="{width:.0f}" '
        'style="max-width: 100%; height: auto" font-family="system-ui, sans-serif" font-size="14">'
        + "".join(parts)
        + "</svg>"
    )


def _text(
    x: float, y: float, text: str, *, size: int = 14, anchor: str = "middle", colour: str = "currentColor"
) -> str:
    """Text with a rim in the page's colour, so that lines behind it do not disturb."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" paint-order="stroke" '
        f'stroke="var(--md-default-bg-color, none)" stroke-width="4" stroke-linejoin="round">{html.escape(text)}</text>'
    )


def _arrow(path: str, colour: str = "currentColor", dashed: bool = False) -> str:
    """Draw a line with a head at its end; a marker would not take the line's colour."""
    x0, y0, x1, y1 = (float(v) for v in re.findall(r"-?[\d.]+", path)[-4:])
    turn = math.atan2(y1 - y0, x1 - x0)
    ends = [(x1 - 9 * math.cos(turn + s), y1 - 9 * math.sin(turn + s)) for s in (-0.4, 0.4)]
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x1, y1), *ends])
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-opacity="0.75" stroke-width="1.4"{dash}/>'
        f'<polygon points="{head}" fill="{colour}" fill-opacity="0.85"/>'
    )


def _flow(flow: Flow) -> str:
    widths = [max(_wide(box) for box in boxes) for _, boxes in flow.columns]
    height = max(len(boxes) for _, boxes in flow.columns) * (_BOX + _ROW) - _ROW
    place: dict[str, tuple[int, float, float, float]] = {}
    shapes, x = [], float(_MARGIN)
    column = {box.partition("|")[0]: k for k, (_, boxes) in enumerate(flow.columns) for box in boxes}
    forward = [(column[a], text) for a, b, text in flow.arrows if column[b] > column[a]]
    gaps = [max([56.0, *(7.0 * len(text) + 30 for k, text in forward if text and k == m)]) for m in range(len(widths))]
    for k, (colour, boxes) in enumerate(flow.columns):
        y = _MARGIN + (height - len(boxes) * (_BOX + _ROW) + _ROW) / 2
        for box in boxes:
            name, _, small = box.partition("|")
            place[name] = k, x, x + widths[k], y + _BOX / 2
            if not box:
                y += _BOX + _ROW
                continue
            middle = x + widths[k] / 2
            shapes.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{widths[k]:.1f}" height="{_BOX}" rx="5" fill="{colour}" '
                f'fill-opacity="0.16" stroke="{colour}"/>'
                f'<text x="{middle:.1f}" y="{y + (16 if small else 23):.1f}" text-anchor="middle" '
                f'fill="currentColor">{html.escape(name)}</text>'
                f'<text x="{middle:.1f}" y="{y + 30:.1f}" text-anchor="middle" font-size="11.5" fill="currentColor" '
                f'fill-opacity="0.8">{html.escape(small)}</text>'
            )
            y += _BOX + _ROW
        x += widths[k] + gaps[k]
    lines, labels, below = [], [], float(_MARGIN + height)
    for start, end, text in flow.arrows:
        (k, left, right, y), (m, left2, right2, y2) = place[start], place[end]
        if m > k:
            bend = gaps[k] * 0.5
            lines.append(
                _arrow(
                    f"M{right:.1f} {y:.1f}C{right + bend:.1f} {y:.1f} {left2 - bend:.1f} {y2:.1f} {left2:.1f} {y2:.1f}"
                )
            )
            labels.append(_text((right + left2) / 2, (y + y2) / 2 - 6, text, size=12) if text else "")
        elif m == k:
            middle, side = (left + right) / 2, _BOX / 2 if y2 > y else -_BOX / 2
            lines.append(_arrow(f"M{middle:.1f} {y + side:.1f}L{middle:.1f} {y2 - side:.1f}"))
        else:
            below += 26
            a, b = (left + right) / 2, (left2 + right2) / 2
            down = f"M{a:.1f} {y + _BOX / 2:.1f}V{below - 8:.1f}Q{a:.1f} {below:.1f} {a - 8:.1f} {below:.1f}"
            up = f"H{b + 8:.1f}Q{b:.1f} {below:.1f} {b:.1f} {below - 8:.1f}L{b:.1f} {y2 + _BOX / 2:.1f}"
            lines.append(_arrow(down + up, dashed=True))
            labels.append(_text((a + b) / 2, below - 5, text, size=12))
    return _svg(flow.label, x - gaps[-1] + _MARGIN, below + _MARGIN, lines + shapes + labels)


def _wide(box: str) -> float:
    name, _, small = box.partition("|")
    return max(_LETTER * len(name), _SMALL * len(small)) + 2 * _PAD


# --- Frames in space -------------------------------------------------------------------------------------------------


def _move(kind: str, value: float) -> np.ndarray:
    """Return the transform (4, 4) of one parameter of a row of a DH table."""
    step = np.eye(4)
    if kind in ("a", "d"):
        step[0 if kind == "a" else 2, 3] = value
    else:
        c, s = math.cos(value), math.sin(value)
        at = (1, 2) if kind == "alpha" else (0, 1)
        step[np.ix_(at, at)] = [[c, -s], [s, c]]
    return step


class _View:
    """A parallel projection of space, from the front left and above."""

    def __init__(self, scale: float) -> None:
        turn, tilt = math.radians(-62.0), math.radians(22.0)
        right = [-math.sin(turn), math.cos(turn), 0.0]
        up = [-math.sin(tilt) * math.cos(turn), -math.sin(tilt) * math.sin(turn), math.cos(tilt)]
        self.axes, self.scale = np.array([right, up]), scale
        self.seen: list[tuple[float, float]] = []

    def at(self, point: Any) -> tuple[float, float]:
        u, v = self.axes @ np.asarray(point, dtype=float) * self.scale
        self.seen.append((float(u), float(-v)))
        return self.seen[-1]

    def svg(self, label: str, parts: list[str]) -> str:
        """Return the drawing, just large enough for all points."""
        low, high = np.min(self.seen, axis=0) - 30.0, np.max(self.seen, axis=0) + 30.0
        return _svg(label, *(high - low), parts, (low[0], low[1]))

    def line(self, points: list[Any], colour: str, width: float = 2.5, dash: str = "") -> str:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in map(self.at, points))
        return (
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linecap="round" '
            f'stroke-dasharray="{dash or "none"}"/>'
        )

    def frame(self, pose: np.ndarray, name: str, length: float, named: str = "xz") -> list[str]:
        """Draw the axes x and z of a frame, with the names of those in `named`."""
        parts, start = [], pose[:3, 3]
        for axis, letter, colour in ((0, "x", _ORANGE), (2, "z", _BLUE)):
            end = start + length * pose[:3, axis]
            (x0, y0), (x1, y1) = self.at(start), self.at(end)
            parts.append(_arrow(f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}", colour))
            if letter in named:
                far = math.hypot(x1 - x0, y1 - y0) or 1.0
                parts.append(
                    _text(x1 + 14 * (x1 - x0) / far, y1 + 14 * (y1 - y0) / far + 5, letter + name, colour=colour)
                )
        return parts


def _dh(title: str, order: tuple[str, ...]) -> str:
    """One row of a DH table: the four steps from one frame to the next."""
    view = _View(105.0)
    value = {"alpha": math.radians(-55.0), "a": 1.5, "theta": math.radians(50.0), "d": 0.9}
    index = {"alpha": "α", "theta": "θ", "a": "a", "d": "d"}
    before = {"alpha", "a"} if order[0] == "alpha" else set()
    pose, parts = np.eye(4), view.frame(np.eye(4), "ᵢ₋₁", 0.85)
    for kind in order:
        name = index[kind] + ("ᵢ₋₁" if kind in before else "ᵢ")
        new = pose @ _move(kind, value[kind])
        if kind in ("a", "d"):
            ends = [pose[:3, 3], new[:3, 3]]
            parts.append(view.line(ends, _GREEN, 4.0))
            x, y = view.at((ends[0] + ends[1]) / 2)
            parts.append(_text(x + 12, y + 18, name, colour=_GREEN))
        else:
            axis = 2 if kind == "alpha" else 0  # the axis that turns
            turned = [pose @ _move(kind, value[kind] * k / 16) for k in range(17)]
            arc = [each[:3, 3] + 0.55 * each[:3, axis] for each in turned]
            old = [pose[:3, 3], pose[:3, 3] + 0.75 * pose[:3, axis]]
            parts += [view.line(old, _GREY, 1.2, "4 3"), view.line(arc, _GREEN, 1.8)]
            x, y = view.at(turned[8][:3, 3] + 0.72 * turned[8][:3, axis])
            parts.append(_text(x, y + 5, name, colour=_GREEN))
        pose = new
    parts += view.frame(pose, "ᵢ", 0.85)
    return view.svg(f"{title}: from frame i-1 to frame i by {', '.join(order)}", parts)


def _chain(robot: str, q: tuple[float, ...]) -> str:
    """Frames of a shipped robot with modified DH, at joint positions `q`."""
    table = tomllib.loads((DOCS.parent / "configs" / "robots" / f"{robot}.toml").read_text(encoding="utf-8"))
    view = _View(430.0)
    pose, points, parts = np.eye(4), [np.zeros(3)], view.frame(np.eye(4), "₀", 0.16)
    drawn: list[str] = []
    for k, (joint, angle) in enumerate(zip(table["joint"], q, strict=True)):
        offset = math.radians(joint.get("theta_deg", 0.0)) + joint.get("theta", 0.0)
        alpha = math.radians(joint.get("alpha_deg", 0.0)) + joint.get("alpha", 0.0)
        steps = (("alpha", alpha), ("a", joint.get("a", 0.0)), ("theta", offset + angle), ("d", joint.get("d", 0.0)))
        for kind, value in steps:
            pose = pose @ _move(kind, value)
            points.append(pose[:3, 3])
        drawn += view.frame(pose, "₁₂₃₄₅₆₇₈₉"[k], 0.13, "z")
        x, y = view.at(pose[:3, 3])
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_GREEN}"/>')
    link = view.line(points, _GREY, 7.0).replace(
        "stroke-width", 'stroke-opacity="0.45" stroke-linejoin="round" stroke-width'
    )
    return view.svg(f"Joint frames of {robot}: z is the axis of each joint", [link, *parts, *drawn])


def _elastic() -> str:
    """Motor, gear, spring and link with an encoder on either side."""
    zigzag = (
        "M300 70h14"
        + "".join(f"l7 {s}24" if k else f"l4 {s}12" for k, s in enumerate("-+-+-+-".replace("+", " ")))
        + "l4 12h14"
    )
    boxes = ((20, 90, "motor", "J_in", _BLUE), (150, 90, "gear", "1 : N", _GREY), (386, 110, "link", "load", _GREEN))
    parts = [
        f'<rect x="{x}" y="40" width="{w}" height="60" rx="5" fill="{c}" fill-opacity="0.16" stroke="{c}"/>'
        + _text(x + w / 2, 67, name) + _text(x + w / 2, 86, small, size=12)
        for x, w, name, small, c in boxes
    ]  # fmt: skip
    parts += [f'<path d="M110 70H150M240 70H300" stroke="{_GREY}" stroke-width="4"/>']
    parts += [f'<path d="{zigzag}" fill="none" stroke="{_ORANGE}" stroke-width="2.5" stroke-linejoin="round"/>']
    parts += [_text(338, 34, "spring k₁, k₂", size=13), _arrow("M65 142L65 102"), _arrow("M441 142L441 102")]
    parts += [_text(65, 158, "encoder q_motor", size=13), _text(441, 158, "encoder q", size=13)]
    parts += [_text(65, 26, "b_in, b_inD", size=12), _text(441, 26, "b_out, b_outC", size=12)]
    parts += [_text(270, 125, "θ_in / N", size=13), _text(270, 180, "deflection d = θ_in / N − θ_out + zero", size=12)]
    return _svg("Elastic joint: motor, gear, spring, link, and an encoder on either side", 520, 192, parts)


if __name__ == "__main__":
    for each in sys.argv[1:] or COMMITTED:
        (DOCS / "images" / f"{each}.svg").write_text(committed(each), encoding="utf-8")
