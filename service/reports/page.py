"""HTML pages of reports: self-contained files of a verdict, the key figures, and sections; one template for all."""

import base64
import functools
import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, Template, select_autoescape
from markupsafe import Markup

Facts = Sequence[tuple[str, str]]
Section = dict[str, Any]

#: Facts that are repeated beside the verdict, in this order.
LEAD = ("relative torque error", "new poses", "condition number", "worst joint", "narrowest limit")
#: Classes of the cells of a column, by the first character of its heading; none for numbers.
_KINDS = {"<": "text", "*": "text long", "!": "text", "=": "text word", "`": "text long"}


def render_page(
    title: str, sections: Iterable[Section], *, verdict: str = "", verdict_text: str = "",
    reasons: Sequence[str] = (), facts: Facts = (),
) -> str:  # fmt: skip
    """Render a page; those of the `facts` that `LEAD` names stand beside the verdict, too."""
    lead = [fact for name in LEAD for fact in facts if fact[0] == name]
    return _template().render(
        title=title, sections=sections, verdict=verdict, verdict_text=verdict_text, reasons=reasons, lead=lead
    )


def table(
    heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "",
    styles: Sequence[str] | None = None,
) -> list[Section]:  # fmt: skip
    """Return a section with a table, none without rows; `note` stands above it, and may be `Markup`.

    The first character of a heading tells what its column holds: `<` text, `*` text that wraps, `` ` `` code, `!` text
    that is the class of the row, too, and `=` text that is that of its cell; numbers otherwise. `styles` are classes of
    the rows.
    """
    kinds = [_KINDS.get(column[:1], "") for column in columns]
    names = [column[1:] if kind else column for kind, column in zip(kinds, columns, strict=True)]
    by = next((k for k, column in enumerate(columns) if column[:1] == "!"), None)
    found = []
    for k, row in enumerate(rows):
        style = styles[k] if styles is not None else None if by is None else row[by].replace(" ", "_")
        found.append((style, [_cell(*cell) for cell in zip(columns, kinds, row, strict=True)]))
    heads = list(zip(kinds, names, strict=True))
    return [{"heading": heading, "note": note, "columns": heads, "rows": found}] if found else []


def _cell(column: str, kind: str, cell: str) -> tuple[str, str]:
    if column[:1] == "=":
        return f"{kind} {cell.replace(' ', '_')}", cell
    return kind, Markup("<code>{}</code>").format(cell) if column[:1] == "`" else cell


def fact_table(heading: str, facts: Facts) -> list[Section]:
    """Return a section with what was done."""
    rows = [(None, (("text", key), ("text long", value))) for key, value in facts]
    return [{"heading": heading, "rows": rows}]


def embedded_figure(key: str, png: bytes, heading: str = "", more: str = "") -> Section:
    """Return a section with a figure, its caption `text(key)` and `more`; without a heading it continues the last."""
    caption = text(key) + more
    image = base64.b64encode(png).decode("ascii")
    return {"heading": heading, "caption": caption, "alt": caption.partition(".")[0], "png": image}


def text(key: str) -> str:
    """Return a caption or note of `texts.toml`, by report and name: `trend.figure`."""
    report, _, name = key.partition(".")
    return str(_texts()[report][name])


@functools.cache
def _texts() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("service.reports").joinpath("texts.toml").read_text(encoding="utf-8"))


@functools.cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("service.reports"), autoescape=select_autoescape(default=True), trim_blocks=True
    )
    return environment.get_template("page.html.j2")
