"""Draw the packages from their imports: a page with the line `<!-- packages -->` shows them."""

import html
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from typing import Any

from grimp import build_graph

PLACE = "<!-- packages -->"
#: From the top; each imports only those after it.
ROOTS = ("service", "sim_backend", "drivers", "rt_core")
_COLOURS = {"service": "#4c78a8", "sim_backend": "#72b7b2", "drivers": "#eeca3b", "rt_core": "#e45756"}
_ROW, _BOX, _GAP, _LETTER, _MARGIN = 64, 30, 14, 7.4, 16


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with the drawing in its place."""
    if PLACE not in markdown:
        return markdown
    return markdown.replace(PLACE, "\n\n".join(f"### {name}\n\n{_drawing(name)}" for name in ROOTS))


@cache
def imports(root: str) -> dict[str, frozenset[str]]:
    """Return what each package or module directly below `root` imports of those beside it."""
    graph = build_graph(root)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for child in graph.find_children(root):
        found[child.rpartition(".")[2]] |= set()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            start, end = (name.split(".")[1] for name in (f"{module}.", f"{other}."))
            if start and end and start != end:
                found[start].add(end)
    return {name: frozenset(others) for name, others in found.items()}


def reduced(edges: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Leave out an import of what is also reached by way of another one.

    Raises
    ------
    graphlib.CycleError
        The packages import one another in a circle.
    """
    reached: dict[str, frozenset[str]] = {}
    for name in TopologicalSorter(edges).static_order():
        reached[name] = edges[name].union(*(reached[other] for other in edges[name]))
    return {
        name: frozenset(o for o in others if not any(o in reached[via] for via in others))
        for name, others in edges.items()
    }


def _drawing(root: str) -> str:
    """SVG of the packages below `root`: rows of boxes, each with lines down to what it imports."""
    edges = reduced(imports(root))
    level: dict[str, int] = {}
    for name in TopologicalSorter(edges).static_order():
        level[name] = max((level[other] + 1 for other in edges[name]), default=0)
    rows = [sorted(name for name in level if level[name] == k) for k in range(max(level.values()) + 1)]
    width = max(sum(_wide(name) + _GAP for name in row) for row in rows) + 2 * _MARGIN
    height = _ROW * len(rows) + _MARGIN
    place: dict[str, tuple[float, float]] = {}
    for k, row in enumerate(rows):
        if k:  # above what they import, so that lines cross seldom
            row.sort(key=lambda name: sum(place[other][0] for other in edges[name]) / len(edges[name]))
        x = (width - sum(_wide(name) + _GAP for name in row) + _GAP) / 2
        for name in row:
            place[name] = x + _wide(name) / 2, height - _ROW * (k + 1) + _MARGIN
            x += _wide(name) + _GAP
    lines = [
        f'<line x1="{place[a][0]:.0f}" y1="{place[a][1] + _BOX:.0f}" x2="{place[b][0]:.0f}" y2="{place[b][1]:.0f}" '
        'stroke="currentColor" stroke-opacity="0.35"/>'
        for a, others in sorted(edges.items())
        for b in sorted(others)
    ]
    boxes = [
        f'<rect x="{x - _wide(name) / 2:.0f}" y="{y:.0f}" width="{_wide(name):.0f}" height="{_BOX}" rx="5" '
        f'fill="{_COLOURS[root]}" fill-opacity="0.25" stroke="{_COLOURS[root]}"/>'
        f'<text x="{x:.0f}" y="{y + 20:.0f}" text-anchor="middle" font-family="monospace" font-size="12" '
        f'fill="currentColor">{html.escape(name)}</text>'
        for name, (x, y) in sorted(place.items())
    ]
    return (
        f'<svg role="img" aria-label="Packages of {root}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="max-width: {width:.0f}px; width: 100%">' + "".join(lines + boxes) + "</svg>"
    )


def _wide(name: str) -> float:
    return _LETTER * len(name) + 18
