"""Bounded minimisation by swarms, a genetic algorithm, Levenberg-Marquardt and their combination."""
