"""CIFAR-10 in its two layouts, the digits, the cache of decoded splits, statistics and splits."""

import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from torchvision.datasets import CIFAR10

from tests import small_data
from vit import cifar10
from vit.data import DataError, channel_stats, data_dir, has_cifar10, load_split, validation_split

PARQUET = "cifar10/plain_text/{}-00000-of-00001.parquet"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    monkeypatch.delenv("VIT_DATA_DIR", raising=False)


def load(folder: Path, split: str = "test"):
    return load_split("cifar10", split, folder, download=False)


# Layouts


@pytest.mark.parametrize("split", ["train", "test"])
def test_parquet_gives_the_pixels_that_pillow_decodes(tmp_path: Path, split: str) -> None:
    images, labels = small_data.write_parquet(tmp_path, split)
    loaded = load(tmp_path, split)
    rows = pq.read_table(tmp_path / PARQUET.format(split)).to_pylist()
    decoded = np.stack([np.asarray(Image.open(io.BytesIO(row["img"]["bytes"]))) for row in rows])
    np.testing.assert_array_equal(loaded.images.transpose(0, 2, 3, 1), decoded)
    np.testing.assert_array_equal(loaded.images, images)
    np.testing.assert_array_equal(loaded.labels, labels)
    assert loaded.labels.dtype == np.int64
    assert loaded.class_names == small_data.NAMES


@pytest.mark.parametrize("split", ["train", "test"])
def test_batches_give_the_pixels_that_torchvision_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    small_data.write_batches(tmp_path)
    loaded = load(tmp_path, split)
    # torchvision knows the real files' checksums; it reads small ones once it asks for none.
    for name in ("train_list", "test_list"):
        files = [[file, None] for file, _ in getattr(CIFAR10, name)]
        monkeypatch.setattr(CIFAR10, name, files)
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": None})
    reference = CIFAR10(tmp_path, train=split == "train")
    np.testing.assert_array_equal(loaded.images.transpose(0, 2, 3, 1), reference.data)
    assert loaded.labels.tolist() == reference.targets
    assert loaded.class_names == tuple(reference.classes)
    assert len(loaded.labels) == (100 if split == "train" else 20)


def test_decoding_tells_how_far_it_has_come(tmp_path: Path) -> None:
    small_data.write_parquet(tmp_path, "train", 2_300)
    told: list[tuple[int, int]] = []
    load_split("cifar10", "train", tmp_path, reading=lambda *step: told.append(step))
    assert told == [(1000, 2300), (2000, 2300), (2300, 2300)]


def test_the_same_pictures_have_the_same_fingerprint_in_both_layouts(tmp_path: Path) -> None:
    small_data.write_batches(tmp_path / "a")
    small_data.write_parquet(tmp_path / "b", "test", count=20, seed=5)  # as test_batch
    small_data.write_parquet(tmp_path / "c", "test", count=20, seed=6)
    prints = [load(tmp_path / folder).fingerprint for folder in "abc"]
    assert prints[0] == prints[1] != prints[2]


def test_class_names_come_from_the_file(tmp_path: Path) -> None:
    small_data.write_batches(tmp_path)
    meta = tmp_path / "cifar-10-batches-py" / "batches.meta"
    meta.write_bytes(small_data.batches_meta().replace(b"airplane", b"Airplane"))
    assert load(tmp_path).class_names[0] == "Airplane"
    meta.unlink()
    assert load(tmp_path, "train").class_names == small_data.NAMES


def test_has_cifar10_asks_for_the_whole_split(tmp_path: Path) -> None:
    assert not has_cifar10(tmp_path, "test")
    folder = small_data.write_batches(tmp_path)
    assert has_cifar10(tmp_path, "train") and has_cifar10(tmp_path, "test")
    (folder / "data_batch_3").unlink()
    assert not has_cifar10(tmp_path, "train") and has_cifar10(tmp_path, "test")


def test_a_missing_split_says_which_files_go_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    for part in ("test split", "train-00000-of-00001.parquet", "cifar-10-batches-py", "plain_text"):
        assert part in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_data_dir_is_the_variable_or_data(monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_dir() == Path("data")
    monkeypatch.setenv("VIT_DATA_DIR", "/somewhere")
    assert data_dir() == Path("/somewhere")


# Damaged and hostile sources


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _bad_labels(content: bytes) -> bytes:
    images, labels = small_data.noise(20)
    return small_data.parquet_bytes(images, labels + 1)


def _bad_size(content: bytes) -> bytes:
    return small_data.parquet_bytes(np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, int))


def _bad_png(content: bytes) -> bytes:
    return content.replace(b"IHDR", b"IHDX")


@pytest.mark.parametrize("damage", [_cut, _bad_labels, _bad_size, _bad_png, lambda _: b""])
def test_a_damaged_parquet_names_the_file_to_delete(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    small_data.write_parquet(tmp_path, "test")
    file = tmp_path / PARQUET.format("test")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert str(file) in str(caught.value) and "Delete it" in str(caught.value)
    assert "\n" not in str(caught.value)


class Evil:
    """Unpickles as a call of its choice."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("function", [os.system, eval, np.load, np.fromfile])
def test_a_pickle_that_runs_something_is_refused(
    tmp_path: Path, protocol: int, function: Callable[..., object]
) -> None:
    folder = small_data.write_batches(tmp_path)
    proof = tmp_path / "ran"
    commands = {os.system: f"touch {proof}", eval: f"open({str(proof)!r}, 'w')"}
    evil = Evil(function, commands.get(function, str(proof)))
    (folder / "test_batch").write_bytes(pickle.dumps({"data": evil, "labels": []}, protocol))
    with pytest.raises(DataError, match="asks to run .* refused"):
        load(tmp_path)
    assert not proof.exists()


@pytest.mark.parametrize("name", ["test_batch", "batches.meta"])
@pytest.mark.parametrize("content", [b"", b"\x80\x02}.", b"\x80\x02].", b"no pickle at all"])
def test_a_damaged_batch_names_the_file(tmp_path: Path, name: str, content: bytes) -> None:
    folder = small_data.write_batches(tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert str(folder / name) in str(caught.value)


# The cache


def cache_files(folder: Path) -> dict[str, Path]:
    files = list((folder / "decoded").iterdir())
    assert sorted(file.suffix for file in files) == [".json", ".npy"]  # and nothing half-written
    return {file.suffix: file for file in files}


def test_a_split_is_decoded_once_and_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, _ = small_data.write_parquet(tmp_path, "test")
    first = load(tmp_path)
    monkeypatch.setattr(cifar10, "read_parquet", lambda path: pytest.fail("decoded again"))
    second = load(tmp_path)
    for loaded in (first, second):
        assert isinstance(loaded.images, np.memmap) and not loaded.images.flags.writeable
        assert Path(loaded.images.filename) == cache_files(tmp_path)[".npy"]
        np.testing.assert_array_equal(loaded.images, images)
    assert first.fingerprint == second.fingerprint


def test_the_fingerprint_covers_shape_labels_and_pixels(tmp_path: Path) -> None:
    images, labels = small_data.write_parquet(tmp_path, "test")
    expected = hashlib.sha256(
        b"(50, 3, 32, 32)" + labels.astype("<i8").tobytes() + images.tobytes()
    ).hexdigest()
    assert load(tmp_path).fingerprint == expected


def _flip_byte(files: dict[str, Path]) -> None:
    content = bytearray(files[".npy"].read_bytes())
    content[-1000] ^= 1
    files[".npy"].write_bytes(content)


def _truncate(files: dict[str, Path]) -> None:
    with files[".npy"].open("r+b") as file:
        file.truncate(5000)


def _other_shape(files: dict[str, Path]) -> None:
    np.save(files[".npy"], np.zeros((50, 3, 32, 31), np.uint8))


def _other_type(files: dict[str, Path]) -> None:
    np.save(files[".npy"], np.load(files[".npy"]).astype(np.int8))


def _no_pixels(files: dict[str, Path]) -> None:
    files[".npy"].unlink()


def _no_notes(files: dict[str, Path]) -> None:
    files[".json"].unlink()


def _cut_notes(files: dict[str, Path]) -> None:
    files[".json"].write_bytes(files[".json"].read_bytes()[:40])


def _changed_label(files: dict[str, Path]) -> None:
    notes = json.loads(files[".json"].read_text())
    notes["labels"][7] = 3
    files[".json"].write_text(json.dumps(notes))
    os.utime(files[".npy"])  # so that the pair counts as unread


def _pickled(files: dict[str, Path]) -> None:
    np.save(files[".npy"], np.array([Evil(os.system, "true")], dtype=object))


@pytest.mark.parametrize(
    "damage",
    [_flip_byte, _truncate, _other_shape, _other_type, _no_pixels, _no_notes, _cut_notes]
    + [_changed_label, _pickled],
)
def test_a_damaged_cache_is_built_again(
    tmp_path: Path, damage: Callable[[dict[str, Path]], None]
) -> None:
    images, labels = small_data.write_parquet(tmp_path, "test")
    before = load(tmp_path)
    healthy = {suffix: file.read_bytes() for suffix, file in cache_files(tmp_path).items()}
    del before
    damage(cache_files(tmp_path))
    again = load(tmp_path)
    np.testing.assert_array_equal(again.images, images)
    np.testing.assert_array_equal(again.labels, labels)
    assert {suffix: file.read_bytes() for suffix, file in cache_files(tmp_path).items()} == healthy


def test_a_changed_source_is_read_anew_into_the_same_files(tmp_path: Path) -> None:
    small_data.write_parquet(tmp_path, "test")
    old = load(tmp_path)
    old_pixels = old.images.copy()
    images, _ = small_data.write_parquet(tmp_path, "test", seed=1)
    new = load(tmp_path)
    np.testing.assert_array_equal(new.images, images)
    np.testing.assert_array_equal(old.images, old_pixels)  # what is mapped stays as it was
    assert len(cache_files(tmp_path)) == 2


def test_a_protected_data_folder_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    images, _ = small_data.write_parquet(folder, "test")
    folder.chmod(0o555)
    try:
        loaded = load(folder)
    finally:
        folder.chmod(0o755)
    np.testing.assert_array_equal(loaded.images, images)
    assert [path.name for path in folder.iterdir()] == ["cifar10"]
    assert Path(loaded.images.filename).parent == tmp_path / "user-cache" / "sixty-five-tokens"


def test_two_processes_at_once_build_one_good_cache(tmp_path: Path) -> None:
    images, _ = small_data.write_parquet(tmp_path, "train", count=600)
    program = (
        "import sys; from pathlib import Path; from vit.data import load_split\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(load_split('cifar10', 'train', Path(sys.argv[1])).images.sum())\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    sums = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert sums == [str(images.sum())] * 2
    assert len(cache_files(tmp_path)) == 2


# Digits


def test_digits_are_all_there_once_and_a_fifth_of_each_is_held_out(tmp_path: Path) -> None:
    train, test = (load_split("digits", split, tmp_path) for split in ("train", "test"))
    reference = load_digits()
    assert train.class_names == test.class_names == tuple("0123456789")
    assert train.images.shape[1:] == (1, 8, 8)
    assert (train.images.min(), train.images.max()) == (0, 255)
    ink = np.concatenate([train.images, test.images])[:, 0] * (16 / 255)
    together = sorted(
        zip(map(tuple, ink.round().reshape(-1, 64)), [*train.labels, *test.labels], strict=True)
    )
    assert together == sorted(
        zip(map(tuple, reference.images.reshape(-1, 64)), reference.target, strict=True)
    )
    counts, held_out = np.bincount(reference.target), np.bincount(test.labels)
    np.testing.assert_array_equal(held_out, np.round(counts / 5))


def test_digits_are_split_the_same_way_everywhere(tmp_path: Path) -> None:
    test = load_split("digits", "test", tmp_path)
    assert test.fingerprint == load_split("digits", "test", tmp_path / "elsewhere").fingerprint
    # Pinned, for a shipped model was trained without exactly these.
    assert test.fingerprint.startswith("403fb21e59aea253")


# Statistics and the validation part


def test_channel_stats_are_those_of_the_pixels() -> None:
    images = small_data.noise(1203)[0] // np.array([1, 2, 5], np.uint8)[:, None, None]
    mean, std = channel_stats(images)
    np.testing.assert_allclose(mean, (images / 255).mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, (images / 255).std(axis=(0, 2, 3)), rtol=1e-9)


def test_a_channel_of_one_colour_divides_by_one() -> None:
    mean, std = channel_stats(np.full((3, 1, 4, 4), 51, np.uint8))
    assert mean == pytest.approx((0.2,)) and std == (1.0,)


def test_validation_takes_5000_of_50000_evenly_and_always_the_same() -> None:
    labels = np.random.default_rng(0).permutation(np.arange(50_000) % 10)
    training, validation = validation_split(50_000, labels=labels)
    assert np.bincount(labels[validation]).tolist() == [500] * 10
    np.testing.assert_array_equal(np.sort(np.concatenate([training, validation])), range(50_000))
    again = validation_split(50_000, labels=labels)
    np.testing.assert_array_equal(again[1], validation)


@pytest.mark.parametrize(("n", "size", "expected"), [(1438, 5000, 143), (60_000, 5000, 5000)])
def test_validation_takes_a_tenth_at_most(n: int, size: int, expected: int) -> None:
    training, validation = validation_split(n, size)
    assert (len(validation), len(training)) == (expected, n - expected)
    assert not set(training) & set(validation)


def test_random_pixels_are_fixed_uniform_noise_with_nothing_to_learn():
    train, test = (load_split("random_pixels", split) for split in ("train", "test"))
    assert train.images.shape == (3_560, 3, 32, 32) and test.images.shape == (1_000, 3, 32, 32)
    again = load_split("random_pixels", "train")
    assert again.fingerprint == train.fingerprint != test.fingerprint
    assert abs(train.images.mean() - 127.5) < 0.2
    assert np.bincount(train.labels, minlength=10).min() > 290
    by_label = [train.images[train.labels == label].mean() for label in range(10)]
    assert np.ptp(by_label) < 1  # levels of 255
