"""Check the prose of pages, help texts, alerts and messages against the words and limits of `.ci/prose.txt`.

Pages are checked without code, tables' rules, links' targets and what stands in backquotes; of Python files the string
constants that are texts, without docstrings.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "deploy/*.md")
TEXTS = ("deploy/alerts.yml", "service/**/*.txt", "service/reports/texts.toml")
SOURCES = ("rt_core", "drivers", "sim_backend", "service", "thetad")
_CODE = re.compile(r"^( *)```.*?^\1```$|<!--.*?-->", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"``[^`]+``|`[^`]+`|\$\$?[^$]+\$\$?|(?<=\])\([^)]*\)|https?://\S+")
#: Where a sentence ends: not after the point of a number or an abbreviation.
_END = re.compile(r"(?<=[.!?:;])\)?\*{0,2}\s+")


class Rules:
    """What `.ci/prose.txt` says: words with their remedies, limits, pages not revised yet."""

    def __init__(self, text: str) -> None:
        parts: dict[str, list[str]] = {}
        for line in text.splitlines():
            if heading := re.fullmatch(r"\[(\w+)\]", line):
                parts[heading[1]] = []
            elif line and not line.startswith("#"):
                parts[[*parts][-1]].append(line)
        pairs = [line.split(" -> ") for line in parts["words"]]
        self.words = [(re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), remedy) for pattern, remedy in pairs]
        self.limits = {name: int(value) for name, value in map(str.split, parts["max"])}
        self.unrevised = set(parts["unrevised"])

    def words_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the line, from 0, and what to write instead, of each refused word."""
        for pattern, remedy in self.words:
            for found in pattern.finditer(text):
                yield text.count("\n", 0, found.start()), f"'{' '.join(found[0].split())}': {remedy}"

    def long_parts(self, page: str) -> Iterator[tuple[int, str]]:
        """Yield the line and the length of each sentence and paragraph that is too long."""
        for block in re.finditer(r"(?:^(?! *(?:$|[|#])).+\n?)+", page, re.MULTILINE):
            for item in re.split(r"^ *(?:[-*]|\d+\.) ", block[0], flags=re.MULTILINE):
                line = page.count("\n", 0, block.start() + block[0].index(item))
                lengths = {"paragraph": [len(item.split())], "sentence": [len(s.split()) for s in _END.split(item)]}
                for name, counts in lengths.items():
                    if max(counts) > self.limits[name]:
                        yield line, f"{name} of {max(counts)} words, at most {self.limits[name]}"


def _blank(match: re.Match[str]) -> str:
    """Return nothing but the line ends of a match, or for code in a line a word in its place."""
    return "\n" * match[0].count("\n") or ("" if match[0].startswith(("(", "<")) else "code")


def prose_of_page(text: str) -> str:
    """Return a page without code and targets of links, line by line."""
    return _INLINE.sub(_blank, _CODE.sub(_blank, text))


def texts_of_source(source: str) -> Iterator[tuple[int, str]]:
    """Yield line, from 0, and content of each string constant of a module that is a text and no docstring."""
    tree = ast.parse(source)
    nodes = [*ast.walk(tree)]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(text := node.value, str) and " " in text:
            yield node.lineno - 1, text


def problems(root: Path, rules: Rules) -> Iterator[str]:
    """Yield each problem as `file:line: text`."""

    def files(*patterns: str) -> Iterator[tuple[str, str]]:
        for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
            if (name := path.relative_to(root).as_posix()) not in rules.unrevised:
                yield name, path.read_text(encoding="utf-8")

    for name, text in files(*PAGES):
        prose = prose_of_page(text)
        yield from (f"{name}:{at + 1}: {problem}" for at, problem in (*rules.words_in(prose), *rules.long_parts(prose)))
    for name, text in files(*TEXTS):
        yield from (f"{name}:{at + 1}: {problem}" for at, problem in rules.words_in(text))
    for name, text in files(*(f"{folder}/**/*.py" for folder in SOURCES)):
        for start, content in texts_of_source(text):
            yield from (f"{name}:{start + 1}: {problem}" for _, problem in rules.words_in(content))


def main(root: Path) -> int:
    """Print what is wrong; return the exit code."""
    rules = Rules((root / ".ci" / "prose.txt").read_text(encoding="utf-8"))
    found = [*problems(root, rules)]
    print("\n".join(found) if found else f"the prose is in order ({len(rules.unrevised)} files are not revised yet)")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
