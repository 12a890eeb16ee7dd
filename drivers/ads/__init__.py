"""TwinCAT/ADS: samples that a PLC has put into a ring, read in blocks with pyads."""
