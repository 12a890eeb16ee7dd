"""Build of wheels: all packages below `thetad`, with configurations and deployment files as data.

A clone has `rt_core`, `drivers`, `sim_backend` and `service` at its top; a wheel has them inside `thetad`, so that
nothing else is taken in site-packages.  `rewritten` adapts what they import: absolute imports, and texts that are the
name of a module.  docs/decisions/0054 says why.  An editable installation is not touched.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

TOP = "thetad"
PACKAGES = ("rt_core", "drivers", "sim_backend", "service")
DATA = ("configs", "deploy")
_FROM = re.compile(rb"from[ \t]+")
_QUOTE = re.compile(rb"[rRuU]?(\"\"\"|'''|\"|')")


def rewritten(source: bytes, modules: set[str]) -> bytes:
    """Return the text of a module in which absolute names of `modules` are below `thetad`.

    These are imports, and texts that are nothing but a module's dotted name (of a process, of a package with data).
    Found in the syntax tree; all else stays as it is, and so do the numbers of lines.  Raises `ValueError` where a
    statement would bind another name than before.
    """
    lines = source.splitlines(keepends=True)
    edits, nodes = {}, list(ast.walk(ast.parse(source)))
    parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}  # no whole texts
    for node in (node for node in nodes if node not in parts):
        for found, at, text in _edits(node, lines, modules):
            edits[found.lineno - 1, at] = text
    for (line, at), text in sorted(edits.items(), reverse=True):
        lines[line] = lines[line][:at] + text + lines[line][at:]
    return b"".join(lines)


def _edits(node: ast.AST, lines: list[bytes], modules: set[str]) -> Iterator[tuple[ast.expr | ast.stmt, int, bytes]]:
    """Yield insertions: the node of the line, the column, the text."""
    if isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).partition(".")[0] in PACKAGES:
        yield node, _behind(_FROM, node, lines), b"thetad."
    elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names if alias.name.partition(".")[0] in PACKAGES]
        if names and (len(node.names) > 1 or "." in names[0]):
            raise ValueError(f"line {node.lineno}: import {names[0]}: write `from ... import ...`")
        if names:
            yield node, node.col_offset, b"from thetad "
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value and node.value in modules:
        yield node, _behind(_QUOTE, node, lines), b"thetad."


def _behind(pattern: re.Pattern[bytes], node: ast.expr | ast.stmt, lines: list[bytes]) -> int:
    found = pattern.match(lines[node.lineno - 1], node.col_offset)
    if found is None:
        raise ValueError(f"line {node.lineno}: {lines[node.lineno - 1]!r}: not as expected")
    return found.end()


class BuildPackages(build_py):
    """Copy the packages as they are, then move them below `thetad`."""

    def run(self) -> None:
        """Build."""
        if self.editable_mode:
            super().run()
            return
        built = Path(self.build_lib)
        shutil.rmtree(built, ignore_errors=True)  # a module that has gone must not come back
        super().run()
        found = [path for name in PACKAGES for path in (built / name).rglob("*.py")]
        parts = [path.relative_to(built).with_suffix("").parts for path in found]
        modules = {".".join(each).removesuffix(".__init__") for each in parts}
        for path in [*found, *(built / TOP).rglob("*.py")]:
            try:
                path.write_bytes(rewritten(path.read_bytes(), modules))
            except ValueError as error:
                raise ValueError(f"{path.relative_to(built)}: {error}") from None
        for name in PACKAGES:
            (built / name).rename(built / TOP / name)
        for name in DATA:
            shutil.copytree(name, built / TOP / name)


class EggInfo(egg_info):
    """Metadata that name what a wheel takes in site-packages."""

    def write_file(self, what: str, filename: str, data: str) -> None:
        """Write a file of the metadata."""
        super().write_file(what, filename, f"{TOP}\n" if Path(filename).name == "top_level.txt" else data)


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildPackages, "egg_info": EggInfo})
