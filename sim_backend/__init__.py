"""Simulated hardware: arms, servo drives, an EtherCAT segment and a PLC.

Everything below is fed with times and data, except the servers, which own sockets and a clock.  Where to start:

- `arm`: forward dynamics, friction, drives and sensors of an arm that follows a set trajectory
- `drive`: a CiA 402 servo drive, and an arm moved by commands instead of a trajectory
- `canopen`: object dictionaries of EtherCAT slaves
- `ethercat`: slave controllers with such drives behind them, answering frames on a network interface
- `plc`: an ADS server and the PLC program that samples and moves an arm
- `faults`: schedule of faults, common to segments and PLCs
- `tables`: base of the TOML tables; `errors`, `signals`: shared by all
"""

__all__ = ["arm", "canopen", "drive", "errors", "ethercat", "faults", "plc", "signals", "tables"]
