"""HTML pages of reports: self-contained files, each from a template that extends `base.html.j2`."""

from __future__ import annotations

import base64
import functools
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape


def render_page(template: str, **content: Any) -> str:
    """Render a template of `service/reports/templates`, named without its suffix `.html.j2`."""
    return _environment().get_template(f"{template}.html.j2").render(content)


def embedded_figure(caption: str, png: bytes, heading: str = "") -> dict[str, str]:
    """Return a figure for a template; without a heading it continues the section before."""
    return {"heading": heading, "caption": caption, "alt": caption.partition(".")[0], "png": encoded(png)}


def encoded(png: bytes) -> str:
    """Return an image as the text of a data URL."""
    return base64.b64encode(png).decode("ascii")


@functools.cache
def _environment() -> Environment:
    return Environment(loader=PackageLoader("service.reports"), autoescape=select_autoescape(default=True))
