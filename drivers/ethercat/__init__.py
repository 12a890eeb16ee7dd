"""Servo drives on EtherCAT through pysoem: CoE, CiA 402, distributed clocks."""
