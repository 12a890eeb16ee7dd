"""Elastic joints: springs and friction of joints with encoders on motor and link.

Start with `joint`: one joint from one recording, with the document `elastic.json`. `joints` fits all joints of an arm
from several recordings, and `arm` a whole arm with elastic joints, beside its rigid models.

`parameters` are those of a job. `online` runs the online estimator over a recording; a daemon's estimate starts from
the values that `_prior` computes and `file` reads. The numerics are in `rt_core.elastic`.
"""

__all__ = ["arm", "file", "joint", "joints", "online", "parameters"]
