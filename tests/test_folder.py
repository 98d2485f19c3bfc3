"""Image folders and zips of them, honest and hostile."""

import io
import stat
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

from tests import small_data
from vit import archive, images
from vit import folder as folder_module
from vit.data import DataError, Split, load_split

FILES = small_data.folder_files({"cat": 10, "dog": 5, "eel/deep": 5})


@pytest.fixture(autouse=True)
def _own_data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path / "data"))


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in files.items():
            target.writestr(name, content)
    return path


def both(path: Path, **options: int) -> tuple[Split, Split]:
    train, test = (load_split(str(path), split, **options) for split in ("train", "test"))
    return train, test


def examples(*splits: Split) -> list[tuple[str, bytes]]:
    """Class name and pixels of every picture, sorted."""
    return sorted(
        (split.class_names[label], pixels.tobytes())
        for split in splits
        for label, pixels in zip(split.labels, split.images, strict=True)
    )


def expected(files: dict[str, bytes], class_at: int = 0) -> list[tuple[str, bytes]]:
    """The same from the files themselves, by Pillow."""
    return sorted(
        (
            name.split("/")[class_at],
            np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1).tobytes(),
        )
        for name, content in files.items()
    )


# What is read, and as which class


def test_a_folder_has_the_classes_and_pictures_that_torchvision_finds(tmp_path: Path) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES)
    train, test = both(folder)
    reference = ImageFolder(folder)
    found = sorted(
        (reference.classes[label], np.asarray(picture).transpose(2, 0, 1).tobytes())
        for picture, label in reference
    )
    assert examples(train, test) == found == expected(FILES)
    assert train.class_names == test.class_names == tuple(reference.classes)


def test_a_fifth_of_each_class_is_held_out_always_the_same(tmp_path: Path) -> None:
    train, test = both(small_data.write_files(tmp_path / "a", FILES))
    assert np.bincount(train.labels).tolist() == [8, 4, 4]
    assert np.bincount(test.labels).tolist() == [2, 1, 1]
    assert not set(examples(train)) & set(examples(test))
    again = both(small_data.write_files(tmp_path / "b", FILES))
    assert [split.fingerprint for split in again] == [train.fingerprint, test.fingerprint]


@pytest.mark.parametrize("held_out", ["test", "val", "Test"])
@pytest.mark.parametrize("around", ["", "my pets/"])
def test_given_parts_are_kept(tmp_path: Path, held_out: str, around: str) -> None:
    parts = {
        f"{around}train/": small_data.folder_files({"cat": 4, "dog": 3}, seed=1),
        f"{around}{held_out}/": small_data.folder_files({"cat": 2, "dog": 2}, seed=2),
    }
    files = {top + name: content for top, part in parts.items() for name, content in part.items()}
    splits = both(small_data.write_files(tmp_path / "pets", files))
    assert [examples(split) for split in splits] == [expected(part) for part in parts.values()]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    files = small_data.folder_files({"train": 5, "tram": 5})
    splits = both(small_data.write_files(tmp_path / "vehicles", files))
    assert splits[0].class_names == ("train", "tram")
    assert examples(*splits) == expected(files)


def test_a_zip_is_the_folder_it_was_made_of(tmp_path: Path) -> None:
    folder = both(small_data.write_files(tmp_path / "pets", FILES))
    around = {f"pets/{name}": content for name, content in FILES.items()}
    extra = {
        "__MACOSX/pets/cat/._00.png": b"not a picture",
        "pets/.DS_Store": b"x",
        "pets/cat/.hidden.png": b"x",
        "pets/cat/notes.txt": b"x",
        "pets/README.md": b"x",
    }
    zipped = both(make_zip(tmp_path / "pets.zip", around | extra))
    assert [split.fingerprint for split in zipped] == [split.fingerprint for split in folder]
    assert zipped[0].class_names == ("cat", "dog", "eel")
    assert zipped[0].skipped == zipped[1].skipped == ()


def test_a_picture_is_cropped_to_its_middle_and_resized(tmp_path: Path) -> None:
    wide = np.zeros((32, 96, 3), np.uint8)
    middle = np.random.default_rng(3).integers(0, 256, (32, 32, 3), np.uint8)
    wide[:, 32:64] = middle
    files = {f"{label}/{number}.png": small_data.png(wide) for label in "ab" for number in "123"}
    folder = small_data.write_files(tmp_path / "wide", files)
    same, small = both(folder)[0], both(folder, image_size=8)[0]
    np.testing.assert_array_equal(same.images[0].transpose(1, 2, 0), middle)
    bilinear = Image.fromarray(middle).resize((8, 8), Image.Resampling.BILINEAR)
    difference = small.images[0].transpose(1, 2, 0).astype(int) - np.asarray(bilinear)
    assert small.images.shape == (4, 3, 8, 8) and np.abs(difference).max() <= 1


def test_both_sizes_and_changed_folders_are_told_apart(tmp_path: Path) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES)
    before = both(folder)
    assert both(folder, image_size=16)[0].images.shape == (16, 3, 16, 16)
    np.testing.assert_array_equal(both(folder)[0].images, before[0].images)
    small_data.write_files(folder, {"cat/new.png": FILES["dog/00.png"]})
    assert len(examples(*both(folder))) == len(FILES) + 1


# What cannot be used


def test_unreadable_pictures_are_named_and_left_out(tmp_path: Path) -> None:
    bad = {"cat/a.jpg": b"", "dog/b.png": b"no picture", "dog/c.webp": FILES["cat/00.png"][:90]}
    folder = small_data.write_files(tmp_path / "pets", FILES | bad)
    splits = both(folder)
    skipped = [line for split in splits for line in split.skipped]
    assert sorted(line.partition(": ")[0] for line in skipped) == sorted(bad)
    for line in skipped:
        name, _, reason = line.partition(": ")
        with pytest.raises(images.PictureError) as caught:
            images.open_picture(bad[name])
        assert reason == str(caught.value)
    assert examples(*splits) == expected(FILES)
    assert both(folder)[0].skipped == splits[0].skipped  # from the cache, too


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no folders of pictures.*folder of its own"),
        ({"1.png": FILES["cat/00.png"]}, "no folders of pictures"),
        (small_data.folder_files({"cat": 4}), "only the class 'cat'.*two classes"),
        (small_data.folder_files({"cat": 4, "dog": 1}), "no readable picture of 'dog' to test"),
        (small_data.folder_files({"cat": 4}) | {"dog/1.png": b"", "dog/2.png": b""}, "'dog'"),
        (small_data.folder_files({"train/a": 2, "train/b": 2, "test/c": 1}), "'c' but none"),
    ],
)
def test_a_folder_that_cannot_be_trained_on_says_what_to_do(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    (tmp_path / "pets").mkdir()
    folder = small_data.write_files(tmp_path / "pets", files)
    for path in (folder, make_zip(tmp_path / "pets.zip", files)):
        with pytest.raises(DataError, match=message) as caught:
            both(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"text", b"PK\x03\x04 and no more"])
def test_a_path_that_is_no_dataset_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pets.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"no dataset at .*pets\.zip.*cifar10 and digits"):
        load_split(str(path), "train")


def test_a_folder_too_large_to_keep_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES)
    monkeypatch.setattr(images, "open_picture", lambda data: pytest.fail("read"))
    with pytest.raises(DataError, match="GiB at 40000x40000.*smaller size"):
        load_split(str(folder), "train", image_size=40_000)


# Hostile zips


def assert_refused(path: Path, message: str) -> None:
    beside = sorted(path.parent.iterdir())
    with pytest.raises(DataError, match=message) as caught:
        load_split(str(path), "train")
    assert str(path) in str(caught.value) and "\0" not in str(caught.value)
    assert sorted(path.parent.iterdir()) == beside


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../cat/1.png", "outside"),
        ("cat/../../1.png", "outside"),
        ("/cat/1.png", "outside"),
        ("C:/cat/1.png", "outside"),
        ("c:cat.png", "outside"),
        ("cat\\1.png", "no path"),
        ("..\\1.png", "no path"),
        ("../note.txt", "outside"),  # whatever its kind
    ],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str, message: str) -> None:
    path = make_zip(tmp_path / "evil.zip", FILES | {name: FILES["cat/00.png"]})
    assert_refused(path, message)


def test_a_name_with_a_hidden_end_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "evil.zip", FILES | {"cat/zz.png_.txt": b"x"})
    path.write_bytes(path.read_bytes().replace(b"zz.png_", b"zz.png\0"))
    assert_refused(path, "no path")


def test_links_are_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "evil.zip", FILES)
    link = zipfile.ZipInfo("cat/link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as target:
        target.writestr(link, "/etc/passwd")
    assert_refused(path, "is a link")


def _mark_encrypted(content: bytes) -> bytes:
    at = content.index(b"PK\x01\x02") + 8
    return content[:at] + bytes([content[at] | 1]) + content[at + 1 :]


def _unusual_method(content: bytes) -> bytes:
    at = content.index(b"PK\x01\x02") + 10
    return content[:at] + b"\x0e" + content[at + 1 :]


def _cut(content: bytes) -> bytes:
    # The end is kept, so that it still looks like a zip.
    return content[-300:]


@pytest.mark.parametrize(
    ("change", "message"),
    [(_mark_encrypted, "encrypted"), (_unusual_method, "unusual"), (_cut, "cannot be opened")],
)
def test_zips_that_cannot_be_read_are_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = make_zip(tmp_path / "evil.zip", FILES)
    path.write_bytes(change(path.read_bytes()))
    assert_refused(path, message)


def test_an_entry_that_swells_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "bomb.zip", FILES | {"cat/bomb.bmp": bytes(3 * 2**20)})
    assert_refused(path, "200 times")


def test_a_zip_of_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_zip(tmp_path / "bomb.zip", FILES)
    total = sum(map(len, FILES.values()))
    monkeypatch.setattr(archive, "MAX_UNPACKED", total)
    assert examples(*both(path)) == expected(FILES)
    path = make_zip(tmp_path / "bomb 2.zip", FILES | {"one": b"1"})
    assert_refused(path, "GiB and is refused")
    monkeypatch.setattr(archive, "MAX_ENTRIES", len(FILES))
    assert_refused(path, "21 files; at most 20")


def test_a_picture_larger_than_pictures_may_be_is_never_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 20_000)
    large = np.random.default_rng(0).bytes(30_000)
    seen: list[int] = []
    opened = images.open_picture
    monkeypatch.setattr(images, "open_picture", lambda data: seen.append(len(data)) or opened(data))
    for path in (
        make_zip(tmp_path / "pets.zip", FILES | {"cat/large.bmp": large}),
        small_data.write_files(tmp_path / "pets", FILES | {"cat/large.bmp": large}),
    ):
        seen.clear()
        splits = both(path)
        assert max(seen) == 20_001
        assert [line[:13] for split in splits for line in split.skipped] == ["cat/large.bmp"]


def test_an_entry_damaged_in_the_zip_is_named_and_left_out(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as target:  # stored: pixels lie in the open
        for name, content in FILES.items():
            target.writestr(name, content)
    content = bytearray((tmp_path / "pets.zip").read_bytes())
    content[content.index(FILES["cat/03.png"]) + 1000] ^= 1
    (tmp_path / "pets.zip").write_bytes(content)
    splits = both(tmp_path / "pets.zip")
    assert [line for split in splits for line in split.skipped] == [
        "cat/03.png: it is damaged inside the zip"
    ]
    good = {name: content for name, content in FILES.items() if name != "cat/03.png"}
    assert examples(*splits) == expected(good)


# By the names alone


def test_a_survey_names_what_would_be_read_and_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES | {"cat/bad.png": b""})
    zipped = make_zip(tmp_path / "pets.zip", FILES | {"cat/bad.png": b""})
    splits = both(folder)
    monkeypatch.setattr(images, "open_picture", lambda data: pytest.fail("read"))
    found = folder_module.survey(folder)
    assert found == folder_module.survey(zipped)
    assert sorted(name for part in found.values() for name, _ in part) == sorted(
        [*FILES, "cat/bad.png"]
    )
    (skipped,) = (
        part for part, split in zip(("train", "test"), splits, strict=True) if split.skipped
    )
    for part, split in zip(("train", "test"), splits, strict=True):
        labels = [label for _, label in found[part]]
        assert len(labels) == len(split.labels) + (part == skipped)


@pytest.mark.parametrize("files", [{}, small_data.folder_files({"cat": 4})])
def test_a_survey_refuses_what_reading_would(tmp_path: Path, files: dict[str, bytes]) -> None:
    (tmp_path / "pets").mkdir()
    folder = small_data.write_files(tmp_path / "pets", files)
    for path in (folder, make_zip(tmp_path / "pets.zip", files), tmp_path / "none"):
        with pytest.raises(DataError) as surveyed:
            folder_module.survey(path)
        with pytest.raises(DataError) as read:
            load_split(str(path), "train")
        assert str(surveyed.value) == str(read.value)


# ---- how far it has come -------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_reading_tells_how_far_it_has_come(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "pictures"
    path = make_zip(path, FILES) if packed else small_data.write_files(path, FILES)
    told: list[tuple[int, int]] = []
    load_split(str(path), "train", reading=lambda *step: told.append(step))
    assert told == [(done, 16) for done in range(1, 17)]
    load_split(str(path), "train", reading=lambda *step: told.append(step))
    assert len(told) == 16, "what is decoded already is not read again"


def test_reading_can_be_given_up_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = 0
    real = images.open_picture

    def slow(content: bytes) -> Image.Image:
        nonlocal opened
        opened += 1
        time.sleep(0.02)
        return real(content)

    def give_up(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folder_module.images, "open_picture", slow)
    path = small_data.write_files(tmp_path / "pictures", small_data.folder_files({"a": 60, "b": 5}))
    with pytest.raises(KeyboardInterrupt):
        load_split(str(path), "train", reading=give_up)
    assert opened < 20
