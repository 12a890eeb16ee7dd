"""Files kept by their content: once, unchanged, and never used when damaged."""

import hashlib
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from service.jobs.queue.artifacts import MIN_AGE_S, ArtifactError, Artifacts, _age

CONTENT = b"what a job has made\n"
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "result.txt"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def kept(tmp_path: Path) -> Artifacts:
    return Artifacts(tmp_path / "state" / "jobs")


def make_old(path: Path) -> None:
    then = time.time() - MIN_AGE_S - 60.0
    os.utime(path, (then, then))


def files(kept: Artifacts) -> set[str]:
    return {path.name for path in kept._objects.rglob("*") if path.is_file()}


def test_put_and_read(kept: Artifacts, source: Path) -> None:
    assert kept.put(source) == SHA
    path = kept.verify(SHA)
    assert path == kept.path(SHA) == kept._objects / SHA[:2] / SHA[2:]
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert files(kept) == {SHA[2:]}
    source.write_bytes(b"changed later")
    assert kept.verify(SHA).read_bytes() == CONTENT


def test_nothing_is_written_over(kept: Artifacts, source: Path) -> None:
    kept.put(source)
    before = kept.path(SHA).stat()
    make_old(kept.path(SHA))
    assert kept.put(source) == SHA
    after = kept.path(SHA).stat()
    assert after.st_ino == before.st_ino
    assert after.st_mtime > time.time() - MIN_AGE_S / 2  # young again
    assert files(kept) == {SHA[2:]}


def test_a_damaged_object_is_set_aside(kept: Artifacts, source: Path) -> None:
    kept.put(source)
    path = kept.path(SHA)
    path.chmod(0o644)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(ArtifactError, match=rf"{SHA[2:]}: damaged: .*{SHA[2:]}\.bad"):
        kept.verify(SHA)
    assert files(kept) == {f"{SHA[2:]}.bad"}
    with pytest.raises(ArtifactError, match="is not kept; it was damaged"):
        kept.path(SHA)
    assert kept.put(source) == SHA
    assert kept.verify(SHA).read_bytes() == CONTENT
    assert files(kept) == {SHA[2:], f"{SHA[2:]}.bad"}


def test_sweep_deletes_what_is_old_and_not_wanted(kept: Artifacts, tmp_path: Path) -> None:
    shas = []
    for name in ("wanted", "young", "old"):
        (tmp_path / name).write_text(name)
        shas.append(kept.put(tmp_path / name))
    wanted, young, old = shas
    torn = kept._objects / ".incoming-torn"
    torn.write_bytes(b"half")
    strange = kept._objects / "README"
    strange.write_bytes(b"")
    for path in (kept.path(wanted), kept.path(old), torn, strange):
        make_old(path)
    assert kept.sweep({wanted}) == 1
    assert files(kept) == {wanted[2:], young[2:], "README"}
    assert kept.sweep({wanted}) == 0


def test_many_at_once(kept: Artifacts, source: Path) -> None:
    """Puts of the same file, sweeps and looks do not get into each other's way."""

    def work(_: int) -> None:
        for _ in range(20):
            assert kept.put(source) == SHA
            kept.sweep(set())
            assert kept.verify(SHA).read_bytes() == CONTENT

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert files(kept) == {SHA[2:]}


def test_what_happens_between_look_and_deletion(kept: Artifacts, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object stored again while a sweep deletes it is there afterwards; a temporary file may be gone by then."""
    kept.put(source)
    torn = kept._objects / ".incoming-torn"
    torn.write_bytes(b"half")
    for path in (kept.path(SHA), torn):
        make_old(path)
    with ThreadPoolExecutor(1) as pool:

        def age(path: Path) -> float:
            seconds = _age(path)
            if path == torn:
                torn.unlink()
            else:
                wait([pool.submit(kept.put, source)], timeout=0.2)  # has to wait for the sweep
            return seconds

        monkeypatch.setattr("service.jobs.queue.artifacts._age", age)
        assert kept.sweep(set()) == 1
    assert kept.verify(SHA).read_bytes() == CONTENT


def test_wrong_names_reach_no_file(kept: Artifacts, source: Path) -> None:
    kept.put(source)
    for name in ("", SHA.upper(), "../" * 10 + "etc/passwd", f"{SHA[:2]}/{SHA[2:]}"):
        with pytest.raises(ArtifactError, match="64 hexadecimal digits"):
            kept.path(name)
    with pytest.raises(ArtifactError, match=r"is not kept$"):
        kept.path("0" * 64)
