"""Torque fit with the nonlinear constants of friction: velocities such as Stribeck's `vb`.

All torques are linear in everything but these constants.  So the data are compressed once for all values of the
constants (`compressed`), and every cost after that is independent of the number of samples: for all parameters at
once (`full`), or for the constants alone with the rest eliminated (`separable`, variable projection).
"""
