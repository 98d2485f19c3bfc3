"""A visitor's own pictures: what is said of them, what is kept, what is refused."""

import errno
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests import small_data
from tests.test_folder import make_zip
from vit import own_data
from vit.data import DataError, load_split
from vit.holdout import training_part
from vit.images import PictureError, open_picture
from vit.recipes import RECIPES, digits, sixty_five, system_b
from vit.settings import Recipe

FILES = small_data.folder_files({"cat": 10, "dog": 5, "eel": 5})
PARTS = small_data.folder_files({"train/cat": 4, "train/dog": 3, "test/cat": 2, "test/dog": 1})
BAD = {"cat/a.jpg": b"", "dog/b.png": b"no picture"}


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("VIT_TRAINING", raising=False)
    return tmp_path / "data"


def zipped(folder: Path, files: dict[str, bytes]) -> bytes:
    return make_zip(folder / "sent.zip", files).read_bytes()


# ---- a path --------------------------------------------------------------------------------------


def test_a_path_is_expanded_and_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_data.write_files(tmp_path / "my pets", FILES)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for text in ("~/my pets", "my pets", f" {folder}/ ", f"'{folder}'", f'"{folder}"'):
        assert own_data.find(text) == folder


@pytest.mark.parametrize(
    "text",
    ["", "  ", "''", "none/such", "~nobody/x", "a\0b", "x" * 5000, "/dev/null", "/etc/passwd/x"],
)
def test_what_leads_nowhere_is_one_sentence(text: str) -> None:
    with pytest.raises(DataError, match="no folder and no zip of that name.*whole path"):
        own_data.find(text)


@pytest.mark.parametrize("files", [FILES, PARTS, FILES | BAD])
def test_the_names_tell_what_a_folder_and_its_zip_hold(
    tmp_path: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_data.write_files(tmp_path / "pets", files)
    sent = make_zip(tmp_path / "pets.zip", files)
    monkeypatch.setattr(own_data.data, "load_split", lambda *_, **__: pytest.fail("read"))
    for path in (folder, sent):
        found = own_data.look(path)
        assert (found.path, found.title, found.skipped) == (path, str(path), None)
        assert sum(found.training) + found.testing == len(files)
        assert found.class_names == (("cat", "dog") if files is PARTS else ("cat", "dog", "eel"))
    if files is PARTS:
        assert (found.training, found.testing) == ((4, 3), 3)
    if files is FILES:
        assert (found.training, found.testing) == ((8, 4, 4), 4)


def test_reading_tells_which_pictures_cannot_be_read(tmp_path: Path) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES | BAD)
    told: list[tuple[int, int]] = []
    found = own_data.read(own_data.look(folder), reading=lambda *now: told.append(now))
    splits = [load_split(str(folder), part) for part in own_data.PARTS]
    assert found.training == tuple(np.bincount(splits[0].labels))
    assert found.testing == len(splits[1].labels)
    assert sum(found.training) + found.testing == len(FILES)
    reasons = {}
    for name, content in BAD.items():
        with pytest.raises(PictureError) as caught:
            open_picture(content)
        reasons[name] = str(caught.value)
    assert found.skipped is not None
    assert sorted(found.skipped) == sorted(f"{name}: {why}" for name, why in reasons.items())
    assert told[-1] == (22, 22) and told == sorted(told)


def test_a_folder_that_may_not_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES)

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path / "cat"))

    monkeypatch.setattr(own_data, "survey", refused)
    with pytest.raises(DataError, match=r"pets cannot be read \(Permission denied\). Check"):
        own_data.look(folder)


# ---- a zip that is sent --------------------------------------------------------------------------


def test_a_zip_is_kept_under_its_hash_and_shown_by_its_name(tmp_path: Path, data_dir: Path) -> None:
    content = zipped(tmp_path, FILES)
    path = own_data.keep(content, "my pets.zip")
    sha256 = hashlib.sha256(content).hexdigest()
    assert path == data_dir / "own" / f"{sha256}.zip"
    assert path.read_bytes() == content
    assert own_data.title(str(path)) == own_data.look(path).title == "my pets.zip"
    assert own_data.kept() == [path]
    assert own_data.keep(content, "other.zip") == path
    assert own_data.title(str(path)) == "other.zip"
    found = own_data.read(own_data.look(path))
    assert (found.skipped, found.training) == ((), (8, 4, 4))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "../../etc/passwd"),
        ("/srv/x.zip", "/srv/x.zip"),
        ("a\0b\n c\x1b.zip", "ab c.zip"),
        ("", "pictures.zip"),
        ("x" * 300, "x" * 80),
    ],
)
def test_a_senders_name_is_shown_and_never_a_path(
    tmp_path: Path, data_dir: Path, name: str, shown: str
) -> None:
    path = own_data.keep(zipped(tmp_path, FILES), name)
    assert own_data.title(str(path)) == shown
    assert sorted(file.name for file in (data_dir / "own").iterdir()) == sorted(
        [path.name, path.with_suffix(".json").name]
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data", "sent.zip"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"cat/1.png": FILES["cat/00.png"]}, "pets.zip has only the class 'cat'.*two classes"),
        ({"notes.txt": b"x"}, "pets.zip has no folders of pictures"),
        (FILES | {"../dog/1.png": b"x"}, "pets.zip is refused.*points outside"),
        (FILES | {"/etc/1.png": b"x"}, "pets.zip is refused.*points outside"),
        (FILES | {"cat/bomb.bmp": bytes(3 * 2**20)}, "pets.zip is refused.*200 times"),
    ],
)
def test_a_zip_that_is_refused_leaves_nothing_behind(
    tmp_path: Path, data_dir: Path, files: dict[str, bytes], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        own_data.keep(zipped(tmp_path, files), "pets.zip")
    assert str(data_dir) not in str(caught.value)
    assert list((data_dir / "own").iterdir()) == own_data.kept() == []


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 and no more"])
def test_what_is_no_zip_is_refused(data_dir: Path, content: bytes) -> None:
    with pytest.raises(DataError, match=r"There is no dataset at pets\.zip"):
        own_data.keep(content, "pets.zip")
    assert own_data.kept() == []


def test_a_zip_cut_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pets.zip cannot be opened as a zip"):
        own_data.keep(zipped(tmp_path, FILES)[-300:], "pets.zip")
    assert own_data.kept() == []


def test_a_zip_kept_before_survives_a_later_failure_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = zipped(tmp_path, FILES)
    path = own_data.keep(content, "pets.zip")

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(own_data, "survey", refused)
    with pytest.raises(DataError, match="cannot be read"):
        own_data.keep(content, "pets.zip")
    assert path.read_bytes() == content


def test_a_full_disk_is_one_sentence(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, write: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    content = zipped(tmp_path, FILES)
    monkeypatch.setattr(own_data, "write_atomically", full)
    with pytest.raises(DataError, match=r"No space left on device\). Free some space"):
        own_data.keep(content, "pets.zip")


def test_no_more_is_kept_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = zipped(tmp_path, FILES)
    path = own_data.keep(content, "pets.zip")
    monkeypatch.setattr(own_data, "KEPT_BYTES", len(content) + 100)
    with pytest.raises(DataError, match="Delete there what no run needs"):
        own_data.keep(zipped(tmp_path, FILES | BAD), "more.zip")
    assert own_data.keep(content, "pets.zip") == path, "what is there already takes no room"


def test_only_what_was_kept_is_listed_by_name(tmp_path: Path, data_dir: Path) -> None:
    first = own_data.keep(zipped(tmp_path, FILES), "Zebras.zip")
    second = own_data.keep(zipped(tmp_path, PARTS), "ants.zip")
    (data_dir / "own" / "stray.zip").write_bytes(b"")
    assert own_data.kept() == [second, first]
    for damaged in (b"", b"[]", b'{"name": 3}', b"{"):
        second.with_suffix(".json").write_bytes(damaged)
        assert own_data.title(str(second)) == second.name


def test_a_read_only_data_directory_is_left_alone(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir.mkdir()
    data_dir.chmod(0o555)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = own_data.keep(zipped(tmp_path, FILES), "pets.zip")
    assert path.parent == tmp_path / "cache" / "sixty-five-tokens" / "own"
    assert list(data_dir.iterdir()) == []


# ---- off -----------------------------------------------------------------------------------------


def test_where_training_is_off_nothing_is_read_or_kept(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES)
    content, found = zipped(tmp_path, FILES), own_data.look(folder)
    monkeypatch.setenv("VIT_TRAINING", "off")
    monkeypatch.setattr(own_data, "survey", lambda path: pytest.fail("read"))
    for refused in (
        lambda: own_data.find(str(folder)),
        lambda: own_data.look(folder),
        lambda: own_data.read(found),
        lambda: own_data.keep(content, "pets.zip"),
        own_data.kept,
    ):
        with pytest.raises(DataError, match="VIT_TRAINING=off"):
            refused()
    assert not data_dir.exists()


# ---- a recipe for it -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "debug"])
def test_every_recipe_can_be_fitted(name: str) -> None:
    before = RECIPES[name]()
    fitted = own_data.adapt(before, "/pets", 3, 32)
    assert Recipe.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted
    model = fitted.model
    assert (model.num_classes, model.in_chans, model.image_size) == (3, 3, 32)
    assert (fitted.dataset, model.grid_size) == ("/pets", before.model.grid_size)
    assert fitted.crop_padding / 32 == before.crop_padding / before.model.image_size
    same = ("embed_dim", "depth", "num_heads", "mlp_ratio", "qkv_bias")
    assert all(getattr(model, key) == getattr(before.model, key) for key in same)


def test_what_fits_already_is_left_as_it_is() -> None:
    fitted = own_data.adapt(sixty_five(), "/pets", 10, 32)
    assert fitted == Recipe(**{**vars(sixty_five()), "dataset": "/pets"})


def test_a_side_that_the_grid_does_not_divide_keeps_the_patches() -> None:
    fitted = own_data.adapt(digits(), "/pets", 2, 10)
    assert (fitted.model.patch_size, fitted.crop_padding) == (2, 1)
    with pytest.raises(ValueError, match="Patch sizes that fit: 1, 3, 11, 33"):
        own_data.adapt(system_b(), "/pets", 2, 33)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01])
@pytest.mark.parametrize("validation", [0, 5, 5_000])
def test_a_training_part_depends_on_how_many_there_are_of_each_class_alone(
    share: float, validation: int
) -> None:
    counts = (40, 3, 1, 60)
    ordered = np.repeat(np.arange(4), counts)
    mixed = np.random.default_rng(0).permutation(ordered)
    parts = [training_part(labels, validation, share) for labels in (ordered, mixed)]
    for labels, (chosen, out) in zip((ordered, mixed), parts, strict=True):
        assert not set(chosen) & set(out)
        assert np.bincount(labels[chosen], minlength=4).tolist() == (
            np.bincount(ordered[parts[0][0]], minlength=4).tolist()
        )
        assert len(out) == len(parts[0][1])
