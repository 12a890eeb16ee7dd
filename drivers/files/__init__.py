"""Files: recordings, imports of logs, robot descriptions.

Start with `recordings.recording` (read, describe and write recordings) and `robots.file` (`load_robot`).
`importing.importer` makes recordings from logs of other programs, by a mapping.

- `atomic_write`: files that appear complete or not at all.
- `shipped`: the folders `configs` and `deploy` that come with the product.
- `table`: bases of all TOML tables, unknown keys, NaN and wrong types are refused; ranges of numbers in them.
"""

__all__ = ["atomic_write", "importing", "recordings", "robots", "shipped", "table"]
