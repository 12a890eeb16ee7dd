"""What mkdocs does besides: links that lead out of the docs become text, names of functions links, formulas MathML."""

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")
_FUNCTION = re.compile(r"`(rt_core(?:\.\w+)+)`")
#: What pymdownx.arithmatex leaves: formulas in a line, and formulas on lines of their own.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page without links that lead out of this folder; on theory.md functions lead to their description."""
    if page.file.src_uri == "theory.md":
        markdown = _FUNCTION.sub(r"[`\1`][\1]", markdown)
    return _OUTSIDE.sub(r"\1", markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Return the page with formulas as MathML, which browsers show by themselves."""
    return _FORMULA.sub(lambda match: _mathml(match, page.file.src_uri), content)


def _mathml(match: re.Match[str], page: str) -> str:
    tex = html.unescape(match.group(2)).strip()
    block = match.group(1) == "div"
    found = convert(tex, display="block" if block else "inline")
    if re.search(r">\s*(\\|&<)", found):  # what it does not know is left as it is
        raise PluginError(f"{page}: latex2mathml does not know a command in: {tex}")
    # A formula wider than a narrow screen is scrolled by itself.
    return f'<div style="overflow-x: auto">{found}</div>' if block else found
