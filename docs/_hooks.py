"""What mkdocs does besides: links to files of the repository that are no pages become plain text."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page without links that lead out of this folder."""
    return _OUTSIDE.sub(r"\1", markdown)
