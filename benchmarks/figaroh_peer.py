"""The peer figaroh (PyPI: figaroh), driven the way its own examples drive it.

figaroh reads a URDF and a configuration file, so both are written to a temporary folder.  Everything that costs it
nothing is switched on: friction, rotor inertia and offset columns, which the truth has.  What its examples do
differently from one another is a `Recipe`.

It is an optional extra: `pip install 'thetad[bench]'`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rt_core.model.robot import RobotModel
from rt_core.model.urdf_writer import urdf_from_model

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its curve library registers converters twice
        from figaroh.data import JOINT_TORQUE, TrajectoryData
        from figaroh.identification.base_identification import BaseIdentification
        from figaroh.tools.regressor import build_regressor_basic, build_regressor_reduced
        from figaroh.tools.robot import load_robot as load_figaroh_robot
except ImportError as error:
    raise ImportError(f"the comparison needs figaroh ({error}): pip install 'thetad[bench]'") from error

CONFIGURATION = """\
robot:
  name: "{name}"
  properties:
    joints:
      active_joints: {joints}
tasks:
  identification:
    enabled: true
    problem:
      include_external_forces: false
      use_joint_torques: true
      model_components: {{friction: true, actuator_inertia: true, joint_offset: true}}
    signal_processing:
      sampling_frequency: {rate_hz}
      cutoff_frequency: {cutoff_hz}
      filter_type: "butterworth"
      filter_order: 4
"""


@dataclass(frozen=True)
class Recipe:
    """One way to run figaroh's `BaseIdentification`.

    `decimate` is its default of filtering and keeping every tenth sample of both sides; `wls` its refinement by
    joint variances; `cutoff_hz` the low-pass on position, from which it takes derivatives where none are given.
    `trim_s` masks both ends after the filter, where its padding shows.
    """

    decimate: bool
    wls: bool
    cutoff_hz: float = 50.0
    trim_s: float = 0.0

    def __str__(self) -> str:
        parts = ["WLS" if self.wls else "OLS", "decimated" if self.decimate else "all samples"]
        return ", ".join([*parts, f"low-pass {self.cutoff_hz:g} Hz", f"{self.trim_s:g} s masked at each end"])


class _Identification(BaseIdentification):  # type: ignore[misc]
    """figaroh's own class with data handed over instead of read from a file."""

    def __init__(self, robot: Any, config_file: str, data: TrajectoryData) -> None:
        super().__init__(robot, config_file)
        self._given = data
        model, settings = self.model, self.identif_config
        settings["act_Jid"] = [model.getJointId(name) for name in settings["active_joints"]]
        settings["act_J"] = [model.joints[j] for j in settings["act_Jid"]]
        settings["act_idxq"] = [joint.idx_q for joint in settings["act_J"]]
        settings["act_idxv"] = [joint.idx_v for joint in settings["act_J"]]

    def load_trajectory_data(self, data_source: str | None = None) -> TrajectoryData:  # noqa: ARG002
        return self._given

    def process_kinematics_data(self, filter_config: Any = None) -> None:
        if self._given.dq is None:
            super().process_kinematics_data(filter_config)
        else:  # exact states need no filter; its fixture with analytic derivatives does the same
            self.processed_data = {key: value for key, value in self.raw_data.items() if key != "torques"}


class FigarohPeer:
    """figaroh on one arm: `fit` a recording, then `predict` torque elsewhere."""

    def __init__(self, model: RobotModel) -> None:
        self.model = model
        self._folder = tempfile.TemporaryDirectory(prefix="figaroh_")
        self._urdf = Path(self._folder.name) / "arm.urdf"
        self._urdf.write_text(urdf_from_model(model, model.inertial))
        self.robot = load_figaroh_robot(str(self._urdf), package_dirs=self._folder.name)
        logging.getLogger("figaroh").setLevel(logging.ERROR)

    def close(self) -> None:
        self._folder.cleanup()

    def __enter__(self) -> FigarohPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def identification(
        self, recipe: Recipe, t: np.ndarray, q: np.ndarray, tau: np.ndarray, dq: Any = None, ddq: Any = None
    ) -> Any:
        """figaroh's identification object with data loaded and its regressor built."""
        config = Path(self._folder.name) / "config.yaml"
        names = [joint.name for joint in self.model.joints]
        config.write_text(
            CONFIGURATION.format(
                name=self.model.name, joints=names, rate_hz=1.0 / (t[1] - t[0]), cutoff_hz=recipe.cutoff_hz
            )
        )
        inside = (t >= t[0] + recipe.trim_s) & (t <= t[-1] - recipe.trim_s)
        data = TrajectoryData(t, names, q, tau, JOINT_TORQUE, "N·m", dq=dq, ddq=ddq, mask=inside)
        run = _Identification(self.robot, str(config), data)
        run.initialize()
        return run

    def fit(self, recipe: Recipe, *data: Any) -> Any:
        """Identify; the object holds figaroh's result."""
        with contextlib.redirect_stdout(io.StringIO()):  # it prints a report
            run = self.identification(recipe, *data)
            run.solve(decimate=recipe.decimate, wls=recipe.wls, plotting=False)
        return run

    def predict(self, run: Any, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """(N, n) torque of a fit at exact states, by the steps of figaroh's own validation."""
        W = build_regressor_basic(self.robot, q, dq, ddq, run.identif_config)
        W = build_regressor_reduced(W, run._idx_eliminated)[:, run._base_indices]
        return np.asarray((W @ run.phi_base).reshape(self.model.n, -1).T)
