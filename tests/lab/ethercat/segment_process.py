"""A segment of generic drives moving an arm."""

from functools import partial

from drivers.files.robots.file import load_robot
from sim_backend.ethercat._clock import ClockSettings
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._machine import DriveFitting, Machine
from sim_backend.ethercat._profile import load_profile
from sim_backend.ethercat._segment import Segment


def make_segment(count: int = 6, *, ring: bool = False) -> Segment:
    """Drives with clocks that run apart."""
    profile = load_profile("generic_servo")
    fittings = [DriveFitting(profile, build_dictionary(profile, k)) for k in range(count)]
    machine = Machine(load_robot("space6").model, fittings)
    factories = [partial(SlaveController, profile=profile, dictionary=each.dictionary) for each in fittings]
    clocks = [ClockSettings(20.0 * (-1) ** k + k, 10**9 * k) for k in range(count)]
    return Segment(factories, machine, ring=ring, clocks=clocks)
