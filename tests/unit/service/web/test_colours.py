"""The dashboard's colours for eyes that lack one of the three kinds of cone, computed from its style sheet.

Colour vision without one kind of cone is simulated by the matrices of Machado, Oliveira and Fernandes (2009), "A
physiologically-based model for simulation of color vision deficiency", table 1, severity 1.0, on linear RGB.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from rt_core.types import FloatArray

STYLE = Path(__file__).resolve().parents[4] / "service" / "web" / "static" / "style.css"
EYES = {
    "all cones": np.eye(3),
    "no L cones": np.array(
        [(0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)]
    ),
    "no M cones": np.array(
        [(0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)]
    ),
    "no S cones": np.array(
        [(1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)]
    ),
}
#: From linear sRGB to CIE XYZ (IEC 61966-2-1).
XYZ = np.array(
    [(0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041)]
)
LINES = [f"c{k}" for k in range(8)]
TONES = ["good", "warn", "bad"]
APART = 10.0  # least CIE 1976 colour difference; one of 2 is just noticed side by side
READABLE = 4.5  # least contrast of text (WCAG 2, 1.4.3)


def schemes() -> dict[str, dict[str, FloatArray]]:
    """Linear RGB of the named colours, (3,) each, as the system has it light or dark."""
    light, dark = STYLE.read_text(encoding="utf-8").split("@media (prefers-color-scheme: dark)", 1)
    parts = {"light": light, "dark": dark.split("\n}", 1)[0]}
    return {
        name: {key: linear(value) for key, value in re.findall(r"--([a-z0-9]+): #([0-9a-f]{3}|[0-9a-f]{6});", text)}
        for name, text in parts.items()
    }


def linear(text: str) -> FloatArray:
    digits = text if len(text) == 6 else "".join(2 * digit for digit in text)
    value = np.array([int(digits[k : k + 2], 16) for k in (0, 2, 4)]) / 255.0
    return np.asarray(np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4))


def lab(colour: FloatArray) -> FloatArray:
    """CIE L*a*b* of linear RGB, white of the screen."""
    share = (XYZ @ np.clip(colour, 0.0, 1.0)) / XYZ.sum(axis=1)
    f = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: FloatArray, b: FloatArray) -> float:
    darker, lighter = sorted((float(XYZ[1] @ a), float(XYZ[1] @ b)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("eyes", EYES)
def test_lines_and_tones_differ_for_all_eyes(scheme: str, eyes: str) -> None:
    colours = schemes()[scheme]
    for group in (LINES, TONES):
        seen = {name: lab(EYES[eyes] @ colours[name]) for name in group}
        for a, b in itertools.combinations(group, 2):
            assert np.linalg.norm(seen[a] - seen[b]) > APART, (a, b)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_on_both_grounds(scheme: str) -> None:
    colours = schemes()[scheme]
    for name, ground in itertools.product((*TONES, "ink", "faint", "accent"), ("paper", "raised")):
        assert contrast(colours[name], colours[ground]) > READABLE, (name, ground)


def test_a_pair_that_only_full_colour_vision_tells_apart_would_be_noticed() -> None:
    green, orange = linear("8a6a00"), linear("d55e00")
    differences = {eyes: np.linalg.norm(lab(m @ green) - lab(m @ orange)) for eyes, m in EYES.items()}
    assert differences["all cones"] > 4.0 * APART
    assert differences["no L cones"] < APART
