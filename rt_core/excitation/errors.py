"""Error of an excitation design."""


class ExcitationError(ValueError):
    """Settings, limits or coefficients do not allow a trajectory."""
