"""Exported Structured Text, run: a strict translator of the part of IEC 61131-3 that the export uses.

It takes a function block with variables of LREAL, INT and BOOL and arrays of them, assignments, FOR, IF and CASE, and
refuses all else: keywords as names, names that are undeclared or differ in case alone, initialisers of another length,
writing to inputs and constants, and, when run, values of another type, indices outside an array, a CASE without its
value, and overflow.  MATIEC, a compiler of the standard, takes the same part.
"""

import itertools
import math
import re
from typing import Any

import numpy as np

_KEYWORDS = set(re.findall(r"\w+", """
    ABS ACTION AND ANY ARRAY AT BOOL BY BYTE CASE CONSTANT COS DATE DINT DO DT DWORD ELSE ELSIF EN ENO EXIT EXP EXPT
    FALSE FOR FROM FUNCTION IF INT LEN LIMIT LINT LN LOG LREAL MAX MIN MOD MOVE MUX NOT OF ON OR PROGRAM REAL REPEAT
    RETAIN RETURN SEL SIN SINT SQRT STEP STRING STRUCT TAN TASK THEN TIME TO TRANSITION TRUE TYPE UDINT UINT UNTIL VAR
    WHILE WITH WORD XOR"""))  # fmt: skip
_LITERALS = {"LREAL": r"-?\d+\.\d+(E[+-]?\d+)?", "INT": r"-?\d+", "BOOL": "TRUE|FALSE"}
_TYPES = {"LREAL": float, "INT": int, "BOOL": bool}
_TOKEN = re.compile(r"\d+\.\d+(?:E[+-]?\d+)?|\d+|[A-Z]\w*|<=|>=|<>|[-+*/()\[\],<>=]")
_PYTHON = {"=": "==", "<>": "!=", "AND": "and", "NOT": "not", "TRUE": "True", "FALSE": "False"}
_SECTION = re.compile(r"(VAR(?:_INPUT|_OUTPUT| CONSTANT)?) ((?:\w+ : [^:;]+(?::= [^:;]+)?; )*)END_VAR ")
_DECLARATION = re.compile(r"(\w+) : (?:ARRAY \[([0-9., ]+)\] OF )?(LREAL|INT|BOOL)(?: := \[?([^:;\]]+)\]?)?; ")
_STATEMENT = re.compile(
    r"FOR (?P<index>\w+) := (?P<range>[^:;]+? TO [^:;]+?(?: BY -?\d+)?) DO |(?P<word>IF|ELSIF|CASE) (?P<on>[^:;]+?) "
    r"(?:THEN|OF) |(?P<else>ELSE) |(?P<label>\d+): |END_(?P<end>FOR|IF|CASE); "
    r"|(?P<target>(?P<name>\w+)(?:\[[^:;]+?\])?) := (?P<value>[^:;]+); "
)


def _typed(kind: str, value: Any) -> Any:
    assert type(value) is _TYPES[kind], f"{value!r} is no {kind}"
    assert math.isfinite(value)
    return value


class _Array(dict[Any, Any]):
    """Values by index or tuple of indices, and none at others."""

    def __setitem__(self, place: Any, value: Any) -> None:
        assert place in self, f"no element {place}"
        super().__setitem__(place, value)


_SCOPE = {
    "SIN": math.sin, "COS": math.cos, "EXP": math.exp, "ABS": abs, "EXPT": math.pow, "MIN": min,
    "LIMIT": lambda low, x, high: min(max(low, x), high), "typed": _typed,
    "steps": lambda first, last, by=1: range(first, last + by, by),
}  # fmt: skip


class FunctionBlock:
    """A function block whose body can be called."""

    def __init__(self, source: str) -> None:
        text = re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", source)).upper()
        found = re.fullmatch(
            r"FUNCTION_BLOCK \w+ ((?:VAR.*? END_VAR )+)(.*)END_FUNCTION_BLOCK ", text.removeprefix(" ")
        )
        assert found is not None
        self._sections, self._types, self.values = dict[str, str](), dict[str, str](), dict[str, Any](_SCOPE)
        for section, declarations in self._matched(_SECTION, found[1]):
            for declaration in self._matched(_DECLARATION, declarations):
                self._declare(section, *declaration)
        self._body = compile("\n".join(self._translated(found[2])), "body", "exec")

    def __call__(self, **inputs: np.ndarray) -> dict[str, Any]:
        """Call it; returns all variables, which keep their values."""
        for name, values in inputs.items():
            assert self._sections[name.upper()] == "VAR_INPUT"
            self.values[name.upper()].update(enumerate(values.tolist()))
        exec(self._body, self.values)
        return self.values

    @staticmethod
    def _matched(pattern: re.Pattern[str], text: str) -> list[tuple[str, ...]]:
        found = list(pattern.finditer(text))
        rest = pattern.sub("", text)
        assert not rest, f"not in the subset: {rest[:80]}"
        return [match.groups() for match in found]

    def _declare(self, section: str, name: str, ranges: str | None, kind: str, given: str | None) -> None:
        assert name not in _KEYWORDS | self._types.keys(), f"{name} is a keyword, or declared twice"
        literals = [] if given is None else given.strip().split(", ")
        assert all(re.fullmatch(_LITERALS[kind], literal) for literal in literals), f"{name}: {given}"
        values = [literal == "TRUE" if kind == "BOOL" else _TYPES[kind](literal) for literal in literals]
        assert (given is not None) == (section == "VAR CONSTANT")
        self._sections[name], self._types[name] = section, kind
        ends = [re.fullmatch(r"0\.\.(\d+)", part) for part in (ranges or "0..0").split(", ")]
        places = list(itertools.product(*(range(int(end[1]) + 1) for end in ends if end)))
        filled = dict(zip(places, values or [_TYPES[kind]()] * len(places), strict=True))
        self.values[name] = _Array((k[0] if len(k) == 1 else k, v) for k, v in filled.items()) if ranges else filled[0,]

    def _translated(self, body: str) -> list[str]:
        lines, blocks, at = list[str](), list[str](), 0
        while at < len(body):
            found = _STATEMENT.match(body, at)
            assert found is not None, f"not in the subset: {body[at : at + 80]}"
            at, name = found.end(), found["name"] or found["index"]
            depth = sum(2 if block == "CASE" else 1 for block in blocks)
            if name:
                assert self._sections[name] in ("VAR", "VAR_OUTPUT"), f"{name} cannot be written"
            if found["index"]:
                line = f"for {name} in steps({self._python(re.sub(' TO | BY ', ', ', found['range']))}):"
                blocks.append("FOR")
            elif found["word"] in ("IF", "CASE"):
                line = {"IF": "if", "CASE": "match"}[found["word"]] + f" {self._python(found['on'])}:"
                blocks.append(found["word"])
            elif found["word"] or found["else"]:
                assert blocks[-1] == "IF"
                line, depth = "else:" if found["else"] else f"elif {self._python(found['on'])}:", depth - 1
            elif found["label"]:
                assert blocks[-1] == "CASE"
                line, depth = f"case {found['label']}:", depth - 1
            elif found["end"]:
                assert blocks.pop() == found["end"]
                line = "case _: raise AssertionError('no such case')" if found["end"] == "CASE" else "pass"
                depth -= 1
            else:
                line = f"{self._python(found['target'])} = typed({self._types[name]!r}, {self._python(found['value'])})"
            lines.append("    " * depth + line)
        assert not blocks
        return lines

    def _python(self, text: str) -> str:
        tokens = _TOKEN.findall(text)
        assert "".join(tokens) == text.replace(" ", ""), f"not in the subset: {text}"
        for word in tokens:
            known = word in self._types or word in _SCOPE or word in _PYTHON or not word[0].isalpha()
            assert known, f"{word} is not declared"
        return " ".join(_PYTHON.get(word, word) for word in tokens)


def st_torque(source: str, *states: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Torque (N, n) of exported Structured Text at states (N, n), and 1 where it is outside what was identified."""
    block, names = FunctionBlock(source), ("q", "dq", "ddq", "temperature")[: len(states)]
    found, outside = np.empty_like(states[0]), []
    for k, row in enumerate(zip(*states, strict=True)):
        values = block(**dict(zip(names, row, strict=True)))
        found[k] = list(values["TAU"].values())
        outside.append(int(values["BOUTSIDE"]))
    return found, outside
