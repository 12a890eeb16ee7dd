"""Choose the number of harmonics by the condition number, as DYN does from 3 to 5."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rt_core.excitation.design import Callback, ExcitationDesign, InfeasibleError, best_design, design_excitation
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.settings import ExcitationSettings, Optimiser
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray


@dataclass(frozen=True)
class Tried:
    """Measure and condition number of the best design with a number of harmonics; None without a design."""

    harmonics: int
    value: float | None
    condition_number: float | None


@dataclass(frozen=True, eq=False)
class HarmonicChoice:
    """Design with the lowest condition number, and all numbers tried."""

    design: ExcitationDesign
    tried: tuple[Tried, ...]


def choose_harmonics(
    model: RobotModel, settings: ExcitationSettings, choices: Sequence[int] = (3, 4, 5),
    optimiser: Optimiser = "gradient", seed: int = 0, callback: Callback | None = None, known: FloatArray | None = None,
) -> HarmonicChoice:  # fmt: skip
    """Design with each number of harmonics and return the design with the lowest condition number.

    Parameters
    ----------
    choices : sequence of int
        Numbers of harmonics, instead of `settings.harmonics`.
    others
        As for `rt_core.excitation.design.design_excitation`.

    Raises
    ------
    InfeasibleError
        If no number gives a trajectory within the limits.
    ExcitationError
        If `choices` is empty or not distinct, or the settings do not allow one of the numbers.
    """
    if not choices or len(set(choices)) < len(choices):
        raise ExcitationError(f"harmonics to choose from must be different numbers, not {list(choices)}")
    asked = [replace(settings, harmonics=harmonics) for harmonics in choices]  # checked before the first search
    tried, designs, refused = [], [], []
    for one in asked:
        try:
            design = design_excitation(model, one, optimiser, seed, callback, known)
        except InfeasibleError as error:
            refused.append(error.design)
            tried.append(Tried(one.harmonics, None, None))
            continue
        designs.append(design)
        tried.append(Tried(one.harmonics, design.value, design.condition_number))
    if not designs:
        best_design(refused)  # raises
    return HarmonicChoice(min(designs, key=lambda design: design.condition_number), tuple(tried))
