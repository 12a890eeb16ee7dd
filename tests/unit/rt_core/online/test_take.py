"""`OnlineEstimator.take` against `step`, to the bit, with gaps, invalid frames and no numbers in a block."""

import numpy as np

from drivers.files.robots.file import load_robot
from rt_core.online import OnlineEstimator, OnlineSettings

RATE, FRAMES = 250.0, 5000


def test_blocks_are_frames_one_after_the_other() -> None:
    model, rng = load_robot("emps").model, np.random.default_rng(3)
    one, other = (OnlineEstimator(model, OnlineSettings(update_hz=50.0), RATE) for _ in range(2))
    seq = np.cumsum(rng.choice([1, 1, 1, 7], FRAMES, p=[0.5, 0.4, 0.08, 0.02])).tolist()
    t = np.array(seq) / RATE
    q = np.sin(4.0 * t)[:, None]
    tau = -48.0 * q + 10.0 * np.cos(4.0 * t)[:, None] + rng.normal(size=(FRAMES, 1))
    valid = rng.random((FRAMES, 1)) > 0.02
    q[2000:2900] = np.nan
    stamps = [round(1e9 * value) for value in t]
    begin, causes = 0, []
    while begin < FRAMES:
        end = min(FRAMES, begin + int(rng.choice([1, 3, 400])))
        part = slice(begin, end)
        took = other.take(stamps[part], seq[part], q[part], tau[part], valid[part], masked=end % 3 == 0)
        renewed = [one.step(stamps[k], seq[k], q[k], tau[k], valid[k], masked=end % 3 == 0) for k in range(begin, end)]
        assert took == np.flatnonzero(renewed).tolist()
        assert (one.supply.cause, one.supply.share) == (other.supply.cause, other.supply.share)
        causes.append(one.supply.cause)
        begin = end
    assert "invalid" in causes
    for name, value in one.state().items():
        np.testing.assert_array_equal(other.state()[name], value)
