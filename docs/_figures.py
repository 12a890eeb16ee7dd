"""Draw the figures of the documents from public recordings: python docs/_figures.py FOLDER_OF_THE_RECORDINGS.

A model of the first 60 % of a Franka Panda's recording (Gaz et al. 2019) predicts the torque of the rest.
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


if __name__ == "__main__":
    panda(Path(sys.argv[1]))
