"""Robot geometry, inverse dynamics, regressor and base parameters."""
