"""Reading an EtherCAT bus that is not in operation, for `thetad ethercat`.

Start with `inspection.Inspection`, a context manager that brings the slaves to PRE-OP and back to the states they
were in.  Everything else takes an open inspection:

- `inspect`: identity, controller, drive state and process data of one slave.
- `config_template`: a configuration to begin with, as TOML tables.
"""

__all__ = ["config_template", "inspect", "inspection"]
