"""Write the PLC's types and global variables in Structured Text, from `layout`.

Run as `COMMAND`.  Without arguments it writes the files in `deploy/twincat`, in a clone; `--axes 6 --to FOLDER` writes
those of another arm.
"""

import argparse
from pathlib import Path

from drivers.ads.layout import CHANNEL_BITS, NAME_CHARS, REASONS, STRUCTURES, VARIABLES, VERSION, Field, Sizes
from drivers.files.shipped import shipped

FOLDER = shipped("deploy/twincat")
DEFAULT = Sizes(axes=9)
COMMAND = f"python -m {__package__}.structured_text"
_MADE = f"// Made by `{COMMAND}`; a change here is not known to thetad.\n"


def _declared(field: Field) -> str:
    kind = f"STRING({NAME_CHARS})" if field.kind == "STRING" else field.kind
    if not field.lengths:
        return kind
    ranges = ", ".join(
        f"0..{length - 1}" if isinstance(length, int) else f"0..GVL_ThetaSize.{length} - 1" for length in field.lengths
    )
    return f"ARRAY [{ranges}] OF {kind}"


def types_text() -> str:
    """Return the structures, with the meaning of each field."""
    parts = [_MADE]
    for name, fields in STRUCTURES.items():
        lines = [f"    {field.name} : {_declared(field)}; // {field.text}" for field in fields]
        # Fields lie at multiples of their sizes anyway; the attribute keeps a project's own packing out.
        parts.append(
            f"{{attribute 'pack_mode' := '8'}}\nTYPE {name} :\nSTRUCT\n" + "\n".join(lines) + "\nEND_STRUCT\nEND_TYPE\n"
        )
    return "\n".join(parts)


def sizes_text(sizes: Sizes) -> str:
    """Return the constants `GVL_ThetaSize`."""
    constants = {
        "AXES": (sizes.axes, "axes"), "BLOCK_SAMPLES": (sizes.block_samples, "samples a block"),
        "BLOCKS": (sizes.blocks, "blocks in the ring"),
        "SETPOINTS": (sizes.setpoints, "points a buffer of set positions"), "VERSION": (VERSION, "of the layout"),
    }  # fmt: skip
    lines = [f"    {name} : UDINT := {value}; // {text}" for name, (value, text) in constants.items()]
    lines += [f"    CHANNEL_{name.upper()} : UDINT := {1 << bit};" for name, bit in CHANNEL_BITS.items()]
    lines += [f"    REASON_{number} : UDINT := {number}; // {text}" for number, text in REASONS.items() if text]
    return f"{_MADE}{{attribute 'qualified_only'}}\nVAR_GLOBAL CONSTANT\n" + "\n".join(lines) + "\nEND_VAR\n"


def variables_text() -> str:
    """Return the global variable list `GVL_Theta`."""
    lines = [f"    {name} : {_declared(Field(name, *kind, ''))};" for name, kind in VARIABLES.items()]
    return f"{_MADE}{{attribute 'qualified_only'}}\nVAR_GLOBAL\n" + "\n".join(lines) + "\nEND_VAR\n"


def files(sizes: Sizes) -> dict[str, str]:
    """Return the contents of the generated files by name."""
    return {"ST_Theta.st": types_text(), "GVL_ThetaSize.st": sizes_text(sizes), "GVL_Theta.st": variables_text()}


def main(arguments: list[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Write the PLC's types and variables in Structured Text.")
    parser.add_argument("--axes", type=int, default=DEFAULT.axes)
    parser.add_argument("--block-samples", type=int, default=DEFAULT.block_samples)
    parser.add_argument("--blocks", type=int, default=DEFAULT.blocks)
    parser.add_argument("--setpoints", type=int, default=DEFAULT.setpoints)
    installed = __package__.startswith("thetad")  # from a wheel, whose files are not ours to write
    parser.add_argument("--to", type=Path, default=FOLDER, required=installed, help="folder (default: deploy/twincat)")
    given = parser.parse_args(arguments)
    given.to.mkdir(parents=True, exist_ok=True)
    for name, text in files(Sizes(given.axes, given.block_samples, given.blocks, given.setpoints)).items():
        (given.to / name).write_text(text, encoding="ascii")
        print(given.to / name)


if __name__ == "__main__":
    main()
