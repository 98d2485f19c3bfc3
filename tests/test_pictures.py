"""Where a visitor's picture comes from, and how long an upload is kept."""

import os
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tests.small_data import NAMES, png, write_parquet
from ui import pictures
from ui.pictures import NoPicture
from vit.images import PictureError


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of uploads; no data anywhere."""
    monkeypatch.setenv("VIT_UPLOADS_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path / "data"))
    yield tmp_path / "kept"


def noise(seed: int, side: int = 8) -> bytes:
    return png(np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8))


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_every_sample_opens_and_is_described() -> None:
    for name, about in pictures.samples().items():
        assert min(pictures.open_named(name).size) >= 200, name
        assert about.label is None or about.label in NAMES, name
    kinds = {name: about.kind for name, about in pictures.samples().items()}
    assert (kinds["cat-photo"], kinds["cat-drawing"]) == ("photo", "drawing")
    assert pictures.samples()["coffee-photo"].label is None


def test_an_upload_is_kept_under_its_sha256(kept: Path) -> None:
    content = noise(0)
    name = pictures.keep_upload(content)
    assert name == sha256(content).hexdigest()
    assert [file.name for file in kept.iterdir()] == [name]
    assert (kept / name).read_bytes() == content
    opened = np.asarray(pictures.open_named(name))
    expected = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    assert (opened == expected).all()
    assert pictures.about(name) == pictures.About("Your picture", None, "upload")


def test_what_is_no_picture_is_not_kept(kept: Path) -> None:
    with pytest.raises(PictureError, match="text"):
        pictures.keep_upload(b"no picture at all")
    assert not kept.exists()


def test_uploads_older_than_a_day_go(kept: Path) -> None:
    old, new = (pictures.keep_upload(noise(seed)) for seed in (0, 1))
    age(kept / old, pictures.UPLOAD_AGE + 60)
    age(kept / new, pictures.UPLOAD_AGE - 60)
    pictures.make_room()
    assert [file.name for file in kept.iterdir()] == [new]


def test_an_upload_too_old_is_not_shown_either(kept: Path) -> None:
    name = pictures.keep_upload(noise(0))
    age(kept / name, pictures.UPLOAD_AGE + 60)
    with pytest.raises(NoPicture, match="deleted after a day. Upload it again"):
        pictures.open_named(name)
    assert list(kept.iterdir()) == []


def test_beyond_the_quota_the_oldest_go_first(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [pictures.keep_upload(noise(seed, side=16)) for seed in range(4)]
    for hours, name in zip((4, 3, 2, 1), names, strict=True):
        age(kept / name, 3600 * hours)
    sizes = {name: (kept / name).stat().st_size for name in names}
    newest = noise(9, side=16)
    monkeypatch.setattr(pictures, "UPLOAD_BYTES", len(newest) + sizes[names[3]] + sizes[names[2]])
    name = pictures.keep_upload(newest)
    assert {file.name for file in kept.iterdir()} == {name, names[3], names[2]}


def test_uploading_again_keeps_it_for_another_day(kept: Path) -> None:
    name = pictures.keep_upload(noise(0))
    age(kept / name, pictures.UPLOAD_AGE - 60)
    assert pictures.keep_upload(noise(0)) == name
    assert time.time() - (kept / name).stat().st_mtime < 60


def test_making_room_touches_nothing_else(kept: Path) -> None:
    kept.mkdir()
    (kept / "notes.txt").write_text("mine")
    age(kept / "notes.txt", 2 * pictures.UPLOAD_AGE)
    pictures.make_room()
    assert (kept / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    ["", "nothing", "../app.py", "..%2Fapp", "/etc/passwd", "cat-photo.jpg", "test--1", "A" * 64],
)
def test_no_other_name_opens_anything(name: str) -> None:
    with pytest.raises(NoPicture, match="no picture of that name"):
        pictures.open_named(name)


def test_a_damaged_upload_is_as_good_as_gone(kept: Path) -> None:
    name = pictures.keep_upload(noise(0))
    (kept / name).write_bytes(b"\x89PNG damaged")
    with pytest.raises(NoPicture, match="no longer kept"):
        pictures.open_named(name)


def test_a_test_picture_needs_the_data(tmp_path: Path) -> None:
    assert not pictures.has_held_out("cifar10")
    with pytest.raises(NoPicture, match="CIFAR-10 is not on this machine"):
        pictures.open_named("test-3")
    images, labels = write_parquet(tmp_path / "data", "test", count=20)
    assert pictures.has_held_out("cifar10")
    assert (np.asarray(pictures.open_named("test-3")) == images[3].transpose(1, 2, 0)).all()
    about = pictures.about("test-3")
    assert (about.label, about.kind) == (NAMES[labels[3]], "held-out")
    with pytest.raises(NoPicture, match="no picture of that name"):
        pictures.open_named("test-20")


def test_a_test_picture_has_a_number() -> None:
    assert pictures.held_out_number("test-12", "cifar10") == 12
    assert pictures.held_out_number("digit-12", "digits") == 12
    assert pictures.held_out_number("test-12", "digits") is None
    assert pictures.held_out_number("frog", "cifar10") is None


def test_a_digit_is_grey_in_all_three_channels(tmp_path: Path) -> None:
    pixels = np.asarray(pictures.open_named("digit-0"))
    assert pixels.shape == (8, 8, 3)
    assert (pixels == pixels[..., :1]).all()
    own = pictures.held_out("digits")
    assert len(own.labels) == pictures.HELD_OUT["digits"][1]
    assert (pixels[..., 0] == own.images[0, 0]).all()
    assert pictures.about("digit-0").label == str(own.labels[0])
