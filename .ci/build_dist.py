"""Build an sdist of what git tracks in this clone, and the wheel from it: `python .ci/build_dist.py FOLDER`.

With the environment's own setuptools, so that nothing is fetched.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tracked(folder: Path) -> Path:
    """Copy the files that git tracks, as they are now, into a folder, and return it."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(source: Path, kind: str, out: Path) -> Path:
    """Build an `sdist` or a `wheel` of a folder with sources into `out`."""
    script = f"import sys\nfrom setuptools.build_meta import build_{kind}\nbuild_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, out.absolute()], cwd=source, check=True, stdout=subprocess.DEVNULL)
    (found,) = out.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return found


def main(out: Path) -> None:
    """Build both."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(build(tracked(Path(folder, "tracked")), "sdist", out)) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = Path(folder).glob("thetad-*")
        build(unpacked, "wheel", out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
