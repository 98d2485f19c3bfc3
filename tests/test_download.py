"""Fetching CIFAR-10 from a server on this machine that behaves as the real ones, or misbehaves."""

import io
import re
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from torchvision.datasets import CIFAR10

from tests import small_data
from tests.loopback_hub import LoopbackHub, loopback_hub
from vit import download
from vit.data import DataError, Split, load_split

NAMES = {split: f"plain_text/{split}-00000-of-00001.parquet" for split in ("train", "test")}
SMALL = {"train": small_data.noise(40, seed=1), "test": small_data.noise(30, seed=2)}
FILES = {NAMES[split]: small_data.parquet_bytes(*SMALL[split]) for split in SMALL}
TEST_FILE = FILES[NAMES["test"]]
HALF = len(TEST_FILE) // 2


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """Both sources on one server; torchvision's has nothing unless a test puts it there."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with loopback_hub(LoopbackHub(dict(FILES))) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setattr(CIFAR10, "url", f"{server.url}/cifar-10-python.tar.gz")
        yield server


def serve_archive(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Put a small cifar-10-python.tar.gz on the server; return the files in it."""
    file = io.BytesIO()
    files = small_data.batch_files()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    hub.plain["/cifar-10-python.tar.gz"] = file.getvalue()
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(file.getvalue()).hexdigest())
    return files


def leftovers(folder: Path) -> list[str]:
    """What lies under the data folder besides decoded splits and locks."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "decoded" and path.suffix != ".lock"
    )


def assert_is(split: Split, name: str) -> None:
    images, labels = SMALL[name]
    np.testing.assert_array_equal(split.images, images)
    np.testing.assert_array_equal(split.labels, labels)


def test_only_the_split_asked_for_is_fetched_into_the_known_layout(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    split = load_split("cifar10", "test", tmp_path, progress=lambda *step: told.append(step))
    assert_is(split, "test")
    assert leftovers(tmp_path) == [f"cifar10/{NAMES['test']}"]
    assert not [*tmp_path.rglob("*.lock")]
    assert (tmp_path / "cifar10" / NAMES["test"]).read_bytes() == TEST_FILE
    assert told == sorted(told) and told[-1] == (len(TEST_FILE), len(TEST_FILE))
    assert not any("train" in request.path for request in hub.requests)
    asked = len(hub.requests)
    load_split("cifar10", "test", tmp_path)
    assert len(hub.requests) == asked  # what is there is not asked for again


def test_the_data_folder_is_made_when_missing(hub: LoopbackHub, tmp_path: Path) -> None:
    assert_is(load_split("cifar10", "train", tmp_path / "new" / "data"), "train")


def test_a_cut_transfer_goes_on_where_it_stopped(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.cuts = [HALF]
    assert_is(load_split("cifar10", "test", tmp_path), "test")
    first, second = hub.bodies()
    assert (first.range, first.sent) == (None, HALF)
    assert (second.range, second.sent) == (f"bytes={HALF}-", len(TEST_FILE) - HALF)


def test_a_transfer_that_ended_goes_on_at_the_next_start(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.cuts = [HALF, 0]  # and nothing more this time
    with pytest.raises(DataError, match="Hugging Face: .*torchvision: "):
        load_split("cifar10", "test", tmp_path)
    (part,) = leftovers(tmp_path)
    assert part.endswith(".part") and (tmp_path / part).stat().st_size == HALF
    hub.requests.clear()
    assert_is(load_split("cifar10", "test", tmp_path), "test")
    assert [(body.range, body.sent) for body in hub.bodies()] == [
        (f"bytes={HALF}-", len(TEST_FILE) - HALF)
    ]
    assert leftovers(tmp_path) == [f"cifar10/{NAMES['test']}"]


def test_a_server_without_ranges_sends_it_all_again(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.ranges, hub.cuts = False, [HALF]
    assert_is(load_split("cifar10", "test", tmp_path), "test")
    assert [body.sent for body in hub.bodies()] == [HALF, len(TEST_FILE)]


def test_a_partial_file_of_another_version_is_not_continued(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    hub.cuts = [HALF, 0]
    with pytest.raises(DataError):
        load_split("cifar10", "test", tmp_path)
    images, labels = small_data.noise(30, seed=9)
    hub.files[NAMES["test"]] = small_data.parquet_bytes(images, labels)
    np.testing.assert_array_equal(load_split("cifar10", "test", tmp_path).images, images)
    assert leftovers(tmp_path) == [f"cifar10/{NAMES['test']}"]


def test_a_file_damaged_once_is_fetched_again(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.wrong = [bytes(len(TEST_FILE))]
    assert_is(load_split("cifar10", "test", tmp_path), "test")
    assert [body.range for body in hub.bodies()] == [None, None]


def test_a_file_damaged_twice_is_refused_and_removed(hub: LoopbackHub, tmp_path: Path) -> None:
    flipped = bytearray(TEST_FILE)
    flipped[HALF] ^= 1
    hub.wrong = [bytes(flipped)] * 2
    with pytest.raises(DataError, match="damaged twice .*sha256"):
        load_split("cifar10", "test", tmp_path)
    assert leftovers(tmp_path) == []


def test_torchvision_is_the_second_source(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = serve_archive(hub, monkeypatch)
    hub.files.clear()
    split = load_split("cifar10", "test", tmp_path)
    images, labels = small_data.noise(20, seed=5)
    np.testing.assert_array_equal(split.images, images)
    np.testing.assert_array_equal(split.labels, labels)
    assert leftovers(tmp_path) == sorted(f"cifar-10-batches-py/{name}" for name in files)


def test_torchvision_checks_what_it_fetched(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_archive(hub, monkeypatch)
    hub.files.clear()
    hub.plain["/cifar-10-python.tar.gz"] += b"!"
    with pytest.raises(DataError, match="torchvision: .*corrupted"):
        load_split("cifar10", "test", tmp_path)
    assert leftovers(tmp_path) == []


def test_without_a_network_both_reasons_and_the_way_out_are_told(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound but not listening: every connection is refused
        taken.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", nowhere)
        monkeypatch.setattr(CIFAR10, "url", f"{nowhere}/cifar-10-python.tar.gz")
        with pytest.raises(DataError) as caught:
            load_split("cifar10", "test", tmp_path)
    message = str(caught.value)
    assert len(re.findall("[Rr]efused", message)) == 2
    for part in ("Hugging Face:", "torchvision:", "To work offline", str(tmp_path), NAMES["test"]):
        assert part.rpartition("/")[2] in message
    assert "\n" not in message
    assert leftovers(tmp_path) == []


def test_a_server_that_never_answers_is_given_up_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        nowhere = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", nowhere)
        monkeypatch.setattr(CIFAR10, "url", f"{nowhere}/cifar-10-python.tar.gz")
        start = time.monotonic()
        with pytest.raises(DataError, match="Hugging Face: .*torchvision: "):
            load_split("cifar10", "test", tmp_path)
        assert time.monotonic() - start < 5


def test_a_folder_that_cannot_hold_the_data_is_named(hub: LoopbackHub, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a folder")
    with pytest.raises(DataError, match="VIT_DATA_DIR"):
        load_split("cifar10", "test", tmp_path / "data")
    assert hub.requests == []


def test_two_at_once_fetch_it_once(hub: LoopbackHub, tmp_path: Path) -> None:
    splits: list[Split] = []
    threads = [
        threading.Thread(target=lambda: splits.append(load_split("cifar10", "test", tmp_path)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({split.fingerprint for split in splits}) == 1
    assert_is(splits[2], "test")
    assert len(hub.bodies()) == 1
