"""Breakaway friction `fb` of each joint, tracked by its starts from rest.

`StartDetector` finds starts in the frames and estimates their torque; `BreakawayTracker` turns them into a value with
an interval for each joint.  `load` has the holding torque and the least Coulomb friction that both need.

Jing et al. (Actuators 2025, 14, 497) update `fb` from the joint torque in orbit, without a load to hold.  Under gravity
it is the same less the torque that holds the links, as far as that is known.
"""

from rt_core.online.breakaway._starts import LEFT_OUT, Start, StartDetector
from rt_core.online.breakaway._track import BreakawayTracker, JointBreakaway

__all__ = ["LEFT_OUT", "BreakawayTracker", "JointBreakaway", "Start", "StartDetector", "load"]
