"""Import of logs of other programs, by mapping files.

Start with `importer.import_recording`: it reads the mapping (`_mapping`), opens the log (`_data_files`, `_text_files`),
converts its channels (`_channels`, `units`), checks them (`checks`) and writes a recording.

- `pose_mapping`: the same for tables of measured poses, for a calibration.
- `data_source`: the interface of an opened log, and its errors.
"""

__all__ = ["checks", "data_source", "importer", "pose_mapping", "units"]
