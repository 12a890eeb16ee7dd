"""A simulated EtherCAT segment: slave controllers, their devices, and the process that answers frames."""
