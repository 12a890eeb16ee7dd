"""Design of excitation trajectories: a Fourier series whose motion determines the base parameters well."""
