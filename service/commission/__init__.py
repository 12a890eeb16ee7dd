"""Commissioning: from the description of a robot to a validated model, step by step.

Where to start: `commissioning` runs the steps in order and resumes where an earlier call ended. `steps` has one module
per step (robot, signals, joints, friction, payload, design, run, identify, validate); `context` is what a step works
with: settings (`settings`), questions to the user, the folder of results (`folder`) and the arm.

The arm is one of a running daemon, or that of a `rehearsal` with a simulated arm; `_site` records its motions and runs
its jobs. `report` renders the results, `errors` are how a commissioning ends early.
"""

__all__ = ["commissioning", "context", "errors", "folder", "rehearsal", "report", "settings", "steps"]
