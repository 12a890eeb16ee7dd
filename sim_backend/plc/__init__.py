"""A simulated PLC: an ADS server, and the PLC program behind it that samples and moves a simulated arm."""
