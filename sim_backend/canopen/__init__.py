"""Object dictionaries of simulated EtherCAT slaves.

Where to start: `dictionary` (`ObjectDictionary` and its `Entry` objects).  A drive holds entries and reads and writes
their `value`; the mailbox of `sim_backend.ethercat` reads and writes them by index, with checks of access, state,
length and range.

`data_types` converts values to bytes and back.
"""

__all__ = ["data_types", "dictionary"]
