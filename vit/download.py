"""Fetching CIFAR-10: from the Hugging Face hub, else with torchvision's own download.

The hub client discards a partial file when a transfer ends early, and checks no more than its size;
so the bytes are fetched here, through the client's session, into a file that the next attempt goes
on with, and that is put in place only once its sha256 is right.
"""

import concurrent.futures
import hashlib
import os
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from filelock import FileLock
from tqdm import tqdm

from vit.cifar10 import BATCHES_FOLDER, SplitName, parquet_file
from vit.decoded import DataError, Progress

REPOSITORY = "uoft-cs/cifar10"
ANSWER_SECONDS = 6.0  # for a first answer, name look-up included: an offline machine learns it soon
STALL_SECONDS = 10.0  # without a new byte

T = TypeVar("T")


def fetch_cifar10(data_dir: Path, split: SplitName, progress: Progress | None = None) -> None:
    """Download a split into `data_dir`, in one of the two layouts that `vit.cifar10` reads.

    progress: called with (bytes done, bytes in all) as bytes arrive; a terminal gets a bar.
    Raises DataError with both sources' reasons, and what to do without a network.
    """
    try:
        parquet_file(data_dir, split).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"CIFAR-10 cannot be kept in {data_dir} ({error.strerror}). Set VIT_DATA_DIR to a "
            "folder that you can write to."
        ) from error
    reasons = []
    for source, fetch in (("Hugging Face", _from_hub), ("torchvision", _from_torchvision)):
        try:
            return fetch(data_dir, split, progress)
        except Exception as error:  # each client fails in its own ways; the user sees both reasons
            reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            reasons.append(f"{source}: {reason}.")
    raise DataError(f"CIFAR-10 could not be downloaded. {' '.join(reasons)} {by_hand(data_dir)}")


def by_hand(data_dir: Path) -> str:
    """What to do without a network: the files to bring, and where they go."""
    folder = parquet_file(data_dir, "train").parent
    return (
        "To work offline, copy train-00000-of-00001.parquet and test-00000-of-00001.parquet of "
        f"the dataset {REPOSITORY} into {folder}, or torchvision's folder {BATCHES_FOLDER} into "
        f"{data_dir}; or set VIT_DATA_DIR to a folder that has them."
    )


def _from_hub(data_dir: Path, split: SplitName, progress: Progress | None) -> None:
    """Fetch the split's one file from the hub, checked by the sha256 that the hub names."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    target = parquet_file(data_dir, split)
    # The client reads HF_ENDPOINT when it is imported, which may be long ago.
    endpoint = (os.environ.get("HF_ENDPOINT") or "").rstrip("/") or None
    url = hf_hub_url(
        REPOSITORY, f"plain_text/{target.name}", repo_type="dataset", endpoint=endpoint
    )
    remote = _answer(
        lambda: get_hf_file_metadata(url, token=False, timeout=ANSWER_SECONDS, endpoint=endpoint)
    )
    sha256, size = remote.etag or "", remote.size or 0
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise DataError("the server names no sha256, so its file could not be checked")
    # Named after its content: a partial file of an older version is never continued.
    part = target.with_name(f".{target.name}.{sha256[:16]}.part")
    lock = target.with_name(f".{target.name}.lock")
    with FileLock(lock):
        if not target.is_file():  # else another process fetched it while this one waited
            _transfer_checked(remote.location, part, size, sha256, _Report(target, size, progress))
            os.replace(part, target)
        for rest in [lock, *target.parent.glob(f".{target.name}.*.part")]:
            rest.unlink(missing_ok=True)


def _transfer_checked(url: str, part: Path, size: int, sha256: str, report: "_Report") -> None:
    for _ in range(2):
        with report:
            _transfer(url, part, size, report)
        with part.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == sha256:
                return
        part.unlink()
    raise DataError("the file arrived damaged twice (its sha256 is not the one promised)")


def _transfer(url: str, part: Path, size: int, report: "_Report") -> None:
    """Fill `part` to `size` bytes, going on after a cut for as long as new bytes arrive."""
    part.touch()
    while (done := part.stat().st_size) < size:
        failure: Exception | None = None
        try:
            _stream(url, part, done, size, report)
        except Exception as error:  # whatever cut the line, the bytes that came are kept
            failure = error
        if part.stat().st_size <= done:
            raise failure or DataError("the server sends nothing more")


def _stream(url: str, part: Path, done: int, size: int, report: "_Report") -> None:
    """Append to `part`, which has `done` bytes, what the server still has to send."""
    from huggingface_hub import get_session

    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with (
        get_session().stream("GET", url, headers=headers, timeout=STALL_SECONDS) as response,
        part.open("ab") as file,
    ):
        response.raise_for_status()
        if response.status_code != 206:  # the whole file from its start, asked for or not
            file.truncate(0)
            done = 0
        for chunk in response.iter_bytes():
            file.write(chunk[: size - done])
            done += len(chunk)
            report(min(done, size))
            if done >= size:
                break


def _from_torchvision(data_dir: Path, split: SplitName, progress: Progress | None) -> None:
    """Fetch both splits as torchvision does, checked by the md5 that it holds."""
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import download_and_extract_archive

    def ask() -> int:
        request = urllib.request.Request(CIFAR10.url, method="HEAD")
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
            return int(response.headers["Content-Length"] or 0)

    size = _answer(ask)
    with tempfile.TemporaryDirectory(
        prefix=".cifar-10-", dir=data_dir, ignore_cleanup_errors=True
    ) as scratch:
        archive = Path(scratch) / CIFAR10.filename
        work = _background(
            lambda: download_and_extract_archive(
                CIFAR10.url, scratch, filename=CIFAR10.filename, md5=CIFAR10.tgz_md5
            )
        )
        _watch(work, Path(scratch), archive, lambda done: progress and progress(done, size))
        target = data_dir / BATCHES_FOLDER
        target.mkdir(exist_ok=True)
        for file in (Path(scratch) / BATCHES_FOLDER).iterdir():
            os.replace(file, target / file.name)


def _watch(
    work: concurrent.futures.Future[None],
    folder: Path,
    archive: Path,
    report: Callable[[int], object],
) -> None:
    """Wait for `work`, which sets itself no time limit, for as long as it fills `folder`."""
    filled, since = -1, time.monotonic()
    while not concurrent.futures.wait([work], timeout=0.2).done:
        if archive.exists():
            report(archive.stat().st_size)
        now = sum(file.stat().st_size for file in folder.rglob("*"))
        if now != filled:
            filled, since = now, time.monotonic()
        elif time.monotonic() - since > 2 * STALL_SECONDS:
            raise DataError("the server stopped sending")
    work.result()


def _background(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Run `work` in a thread that does not keep the program alive, so it may be given up."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _answer(ask: Callable[[], T]) -> T:
    """What a server answers first; a DataError if it does not in time, even for want of a name."""
    future = _background(ask)
    if not concurrent.futures.wait([future], timeout=ANSWER_SECONDS).done:
        raise DataError(f"no answer within {ANSWER_SECONDS:.0f} seconds; is the network up?")
    return future.result()


class _Report:
    """Tells a terminal and a callback how far a transfer has come."""

    def __init__(self, target: Path, size: int, progress: Progress | None) -> None:
        self.target, self.size, self.progress = target, size, progress

    def __enter__(self) -> None:
        self.bar = tqdm(
            total=self.size, desc=f"Fetching {self.target.name}", unit="B", unit_scale=True,
            disable=None,
        )  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def __call__(self, done: int) -> None:
        self.bar.update(done - self.bar.n)
        if self.progress:
            self.progress(done, self.size)
