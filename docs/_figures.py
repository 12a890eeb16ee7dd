"""Draw the figures of the documents from public recordings: python docs/_figures.py FOLDER_OF_THE_RECORDINGS.

A model of the first 60 % of a Franka Panda's recording (Gaz et al. 2019): how it predicts the torque of the rest, and
its friction with 95 % intervals.  `make docs` draws neither, since it needs no recordings.
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import butter, sosfiltfilt

import thetad

IMAGES = Path(__file__).resolve().parent / "images"
SPAN_S, JOINTS = (13.0, 19.4), (1, 3)
mpl.rcParams["svg.hashsalt"] = "thetad"  # the same file each time


def panda(data: Path) -> None:
    """Measured and predicted torque of two joints, in a stretch that the fit has not seen."""
    log = thetad.import_table(data / "franka_panda" / "panda_exciting.npz", "franka_panda")
    model = thetad.identify(log, "franka_panda", span="0:0.6").model
    t = log.t - log.t[0]
    low_pass = butter(4, 10.0, fs=1000.0, output="sos")  # both torques alike, as in the fit
    q, tau = (sosfiltfilt(low_pass, log.channels[name], axis=0) for name in ("q", "tau"))
    dq = np.gradient(q, t, axis=0)
    predicted = sosfiltfilt(low_pass, model.torque(q, dq, np.gradient(dq, t, axis=0)), axis=0)
    shown = (t > SPAN_S[0]) & (t < SPAN_S[1])
    figure, axes = plt.subplots(len(JOINTS), sharex=True, figsize=(8.0, 3.4), layout="constrained")
    for axis, joint in zip(axes, JOINTS, strict=True):
        for y, style, name in ((tau, {"color": "0.6", "lw": 3}, "measured"), (predicted, {"lw": 1.2}, "predicted")):
            axis.plot(t[shown], y[shown, joint], label=name, **style)
        axis.set_ylabel(f"joint {joint + 1} [N m]")
    axes[0].legend(loc="upper right", ncols=2)
    axes[-1].set_xlabel("time [s]")
    figure.savefig(IMAGES / "panda-torque.svg", metadata={"Date": None})
    friction(model)


def friction(model: thetad.Model) -> None:
    """Coulomb and viscous friction of each joint, with the 95 % intervals that the identification states."""
    rows = {row["name"]: row for row in model.file.document["parameters"]}
    figure, axes = plt.subplots(1, 2, figsize=(8.0, 2.8), layout="constrained")
    kinds = (("fc", "Coulomb friction [N m]"), ("fv", "viscous friction [N m s/rad]"))
    for axis, (kind, label) in zip(axes, kinds, strict=True):
        for joint in range(1, 8):
            row = rows[f"{kind}{joint}"]
            if row["value"] is not None:
                axis.errorbar(joint, row["value"], 1.96 * row["std"], fmt="o", color="C0", ms=4, capsize=5)
        axis.set_xticks(range(1, 8))
        axis.set_xlabel("joint")
        axis.set_ylabel(label)
        axis.axhline(0.0, color="0.6", lw=0.8)
        axis.grid(axis="y", alpha=0.4)
    figure.savefig(IMAGES / "panda-friction.svg", metadata={"Date": None})


if __name__ == "__main__":
    panda(Path(sys.argv[1]))
