"""Kinematic calibration: geometric errors of an arm from measured positions or poses of its tool."""
