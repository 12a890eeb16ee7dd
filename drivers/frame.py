"""Joint frames: one sample of all joints, on the joint side, in SI units."""

from dataclasses import dataclass

from rt_core.types import BoolArray, FloatArray, IntArray

#: Optional per-joint channels, in the order in which they are written to the wire and to recordings.
CHANNELS = ("q", "dq", "current", "tau", "q_motor", "temperature", "setpoint")


@dataclass(slots=True)
class JointFrame:
    """One sample; a channel that the source does not measure is None.

    Attributes
    ----------
    seq : int
        Counts the source's cycles from 0; a gap means lost cycles.
    t_bus_ns : int
        Time of the sample on the source's clock [ns]; of a recording, its recorded time.
    t_host_ns : int
        CLOCK_MONOTONIC when the frame was received [ns].
    q, dq, current, tau, q_motor, temperature, setpoint : (n,) float64 or None
        [rad] or [m]; [rad/s]; [A]; [N*m] or [N]; [rad]; [degC]; commanded position as `q`.
    status_word : (n,) int64 or None
        The drives' own status.
    valid : (n,) bool or None
        False where a joint's values of this frame must not be used; None: all are valid.
    """

    seq: int
    t_bus_ns: int
    t_host_ns: int
    q: FloatArray | None = None
    dq: FloatArray | None = None
    current: FloatArray | None = None
    tau: FloatArray | None = None
    q_motor: FloatArray | None = None
    temperature: FloatArray | None = None
    setpoint: FloatArray | None = None
    status_word: IntArray | None = None
    valid: BoolArray | None = None
