"""Ten thousand random images of random layouts: decoded as by hand, finite, and never an unexpected error."""

from __future__ import annotations

from tests.lab.ethercat.decoding_fuzzer import IMAGES_PER_LAYOUT, fuzz

IMAGES = 10_000


def test_random_images_and_layouts() -> None:
    happened = fuzz(IMAGES, seed=1)
    assert happened["decoded"] >= IMAGES
    assert happened["layouts"] >= IMAGES // IMAGES_PER_LAYOUT
    # Each list of images of a wrong length was refused, however many drives it is of.
    assert 0 < happened["wrong lengths refused"] <= happened["decoded"]
    assert happened["layouts refused"] > 50
    assert happened["reals"] > 10  # their values may be infinite or no number
