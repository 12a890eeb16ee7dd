"""Reports: results of operations as self-contained HTML pages, as facts for people and as figures for programs.

One module per kind of result: `identification` (pages) and `identification_document` (model file, facts, summary),
`validation`, `payload`, `calibration` and `calibration_cell`, `elastic`, `excitation`, `comparison`, `trend` (online
estimates) and `hand_guiding` (figures only). Start with `page`, which builds a page of sections with its one
template, and `validation`, the shortest report. `cells` formats numbers, also for the command line, `figures` draws;
`texts.toml` has captions and notes.

Reports take results as they are and compute nothing that changes them.
"""

__all__ = [
    "calibration", "calibration_cell", "cells", "comparison", "elastic", "excitation", "figures", "hand_guiding",
    "identification", "identification_document", "page", "payload", "trend", "validation",
]  # fmt: skip
