"""Breakaway friction `fb` of each joint, tracked by the starts from rest that the frames show.

Jing et al. (Actuators 2025, 14, 497) have it updated from the joint torque in orbit, where nothing else is to be held.
With gravity it is the same, less the torque that holds the links, as far as that is known.
"""

from rt_core.online.breakaway._starts import LEFT_OUT, Start, StartWatch
from rt_core.online.breakaway._track import BreakawayTracker, JointBreakaway

__all__ = ["LEFT_OUT", "BreakawayTracker", "JointBreakaway", "Start", "StartWatch"]
