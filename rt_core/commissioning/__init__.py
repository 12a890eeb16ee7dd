"""What is found out about an arm before its dynamics are identified: signs, units, friction, torque constants.

None of it needs a model.  Motions go along a path and back along the same path: at the same place gravity, Coriolis
torque and inertia torque are the same both ways, and friction changes sides (`hysteresis`).
"""
