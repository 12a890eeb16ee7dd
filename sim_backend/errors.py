"""What can go wrong in a simulation."""


class SimulationError(Exception):
    """Any failure of the simulated backend."""


class SimulationConfigError(SimulationError, ValueError):
    """An arm that cannot be simulated as described; names the setting and the joint."""


class MotionError(SimulationConfigError):
    """A motion that the robot cannot do as asked; names the setting and the joint."""


class SimulationDivergedError(SimulationError, ArithmeticError):
    """The state is no longer finite, or inertia is not positive definite in the posture reached."""
