"""Off-line identification of an elastic (harmonic-drive) joint from motor and link encoders."""
