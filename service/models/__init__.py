"""Model files: what an identification leaves, and what predictions, comparisons and exports read.

Start with `document`: it makes, writes and loads the YAML file, whose schema is in `_schema`; `ModelFile` is a loaded
one.
`origin` records which data a model was fitted to, so that it is never judged on them. `diff` compares two models.

Exports: `export_urdf` and `export_code` for other programs, `hand_guiding_arrays` for the controller of a guided arm.
"""

__all__ = ["diff", "document", "export_code", "export_urdf", "hand_guiding_arrays", "origin"]
