"""Export of a model as C: one function, `thetad_torque`, in a file of its own."""

from collections.abc import Iterable
from pathlib import Path

from rt_core.model.ranges import LEAVES
from service.models.document import ModelFile
from service.models.export_python import BODIES, FORMULAS, NOT_BODIES, tables
from service.models.export_urdf import plain_text, springs_text

#: The file, as `str.format` takes it.
_TEMPLATE = Path(__file__).with_name("exported_model.c.template")
# What a model whose friction follows temperature has besides.
_TEMPERATURES = """/* Per joint: coldest and warmest temperature that friction was identified at [degC]. */
static const double COLDEST[N] = {coldest};
static const double WARMEST[N] = {warmest};
"""
_WARM = """        if (e->warm >= 0) {
            size *= temperature[e->warm] - 20.0;
        }
"""
_CHECK = """        if (!(temperature[i] >= COLDEST[i] - 1.0 && temperature[i] <= WARMEST[i] + 1.0)) {
            outside = 1;
        }
"""


def _braces(items: Iterable[object]) -> str:
    return "{" + ", ".join(_braces(i) if isinstance(i, tuple) else _literal(i) for i in items) + "}"


def _literal(value: object) -> str:
    return repr(int(value)) if isinstance(value, bool) else str(value) if isinstance(value, str) else repr(value)


def _rows(rows: Iterable[tuple[object, ...]]) -> str:
    return "{\n" + "".join(f"    {_braces(row)},\n" for row in rows) + "}"


def to_c(model_file: ModelFile) -> str:
    """Return C99 source with `thetad_torque(q, dq, ddq, tau)`, with temperatures where friction follows them."""
    model, document, found = model_file.robot.model, model_file.document, tables(model_file)
    warm = model_file.temperatures is not None
    effects: list[tuple[object, ...]] = [
        (law.upper(), value, weights, *rest, -1 if place is None else place)
        for law, value, weights, *rest, place in found.effects
    ]
    effects.append(("OFFSET", 0.0, (0.0,) * model.n, 0.0, 0.0, 0.0, -1))  # C has no array without elements
    temperatures = ""
    if model_file.temperatures is not None:
        lower, upper = model_file.temperatures.plain
        coldest = _braces("HUGE_VAL" if value is None else value for value in lower)
        warmest = _braces("-HUGE_VAL" if value is None else value for value in upper)
        temperatures = _TEMPERATURES.format(coldest=coldest, warmest=warmest)
    ranges = model_file.ranges
    text = "" if ranges is None else f"\n * Its {plain_text(ranges.text(model))}."
    text += f"\n * Its {springs_text(model_file)}." if model_file.springs else ""
    return _TEMPLATE.read_text(encoding="utf-8").format(
        robot=plain_text(model.name), kind=document["kind"], method=plain_text(document["method"]),
        recording=plain_text(model_file.origin), verdict=document["verdict"], ranges=text, n=model.n,
        declared=" const double temperature[N]," if warm else "", takes=", and temperature [degC]" if warm else "",
        laws=", ".join(FORMULAS).upper(),
        cases="".join(f"    case {law.upper()}: return {formula};\n" for law, formula in FORMULAS.items()),
        gravity=_braces(found.gravity), joints=_rows(found.joints),
        meaning=" ".join((NOT_BODIES if model_file.standard is None else BODIES).replace("#", "").split()),
        links=_rows(found.links), effects=_rows(effects), count=len(effects) - 1,
        speeds=_braces((0.0,) * model.n if ranges is None else tuple(map(float, ranges.speed))),
        temperatures=temperatures,
        leaves=f"{LEAVES:g}", warm=_WARM if warm else "", check=_CHECK if warm else "",
    )  # fmt: skip
