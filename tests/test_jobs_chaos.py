"""Trainers and workers killed at any moment, removed directories, full disks, many apps at once."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.trainers import PATIENCE, assert_same_run, ended, process, train_debug
from vit import claims, jobs, runs
from vit.recipes import debug
from vit.runs import RunError

pytestmark = pytest.mark.timeout(1_200)

EPOCHS = 2


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    with process(train_debug, out, data, EPOCHS) as child:
        assert ended(child) == 0
    return out


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


# ---- one trainer ---------------------------------------------------------------------------------


def test_killed_before_any_file_it_goes_on_as_if_nothing_had_been(
    undisturbed: Path, data: Path, tmp_path: Path
) -> None:
    for number in itertools.count(1):
        out = tmp_path / str(number)
        with process(train_debug, out, data, EPOCHS, number) as child:
            if not (code := ended(child)):
                break  # it had no more files to write
            assert code == -signal.SIGKILL
        if (out / runs.STATUS).exists():
            job = jobs.look(out)
            assert job.state == "interrupted" and "Resume it" in job.message
        with process(train_debug, out, data, EPOCHS) as child:
            assert ended(child) == 0
        assert jobs.look(out).state == "finished"
        assert_same_run(out, undisturbed)
    assert number > 20


def test_killed_again_and_again_it_still_arrives(
    undisturbed: Path, data: Path, tmp_path: Path
) -> None:
    """Each time before one of its next files, so that it gains little or nothing."""
    chance, out, code, kills = random.Random(65), tmp_path / "run", -9, 0
    while code:
        with process(train_debug, out, data, EPOCHS, chance.randint(1, 12)) as child:
            code = ended(child)
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
    assert kills >= 3
    assert_same_run(out, undisturbed)


def begun(child: BaseProcess, out: Path) -> bool:
    return child.exitcode is not None or claims.is_held(out)


def test_killed_at_any_time_it_still_arrives(data: Path, tmp_path: Path) -> None:
    """Twenty times, at moments that the clock decides; a run that arrives earlier is begun anew."""
    chance, kills, epochs = random.Random(65), 0, 12
    reference = tmp_path / "reference"
    with process(train_debug, reference, data, epochs) as child:
        assert ended(child) == 0
    number = 0
    while kills < 20:
        number += 1
        out, code = tmp_path / str(number), -signal.SIGKILL
        while code:
            before = len(runs.read_metrics(out))
            with process(train_debug, out, data, epochs) as child:
                if kills < 20:
                    wait_for(partial(begun, child, out))
                    time.sleep(chance.uniform(0, 0.4))
                    child.kill()
                code = ended(child)
            assert code in (0, -signal.SIGKILL) and not claims.is_held(out)
            kills += code != 0
            if code and (out / runs.STATUS).exists():
                assert jobs.look(out).state == "interrupted"
            assert len(runs.read_metrics(out)) >= before, "no whole epoch is lost"
        assert_same_run(out, reference)


def test_paused_and_resumed_it_arrives_at_the_same(
    undisturbed: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    for _ in range(3):
        (out / runs.PAUSE).touch()  # heeded at the first step
        with process(train_debug, out, data, EPOCHS) as child:
            assert ended(child) == 130
        job = jobs.look(out)
        assert job.state == "paused" and job.wish == "" and not (out / runs.PAUSE).exists()
    with process(train_debug, out, data, EPOCHS) as child:
        assert ended(child) == 0
    assert_same_run(out, undisturbed)


def test_stopped_early_it_is_finished_and_can_go_on(
    undisturbed: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / runs.STOP).touch()
    with process(train_debug, out, data, EPOCHS) as child:
        assert ended(child) == 0
    job = jobs.look(out)
    assert job.state == "finished" and "Stopped early" in job.message
    assert (job.step, job.total) == (20, 40) and len(runs.read_metrics(out)) == 1
    run, accuracy = runs.load_run(out), runs.read_metrics(out)[0]["test_accuracy"]
    predictions = runs.read_predictions(out)
    right = predictions["probabilities"].argmax(1) == predictions["labels"]
    assert run.epoch == 1 and run.calibrated_on and right.mean() == pytest.approx(accuracy)
    with process(train_debug, out, data, EPOCHS) as child:
        assert ended(child) == 0
    assert jobs.look(out).message == ""
    rows = runs.read_metrics(out)
    assert rows[0]["test_accuracy"] == accuracy, "what the early end had to say stays noted"
    runs.write_metrics(out, [rows[0] | {"test_loss": None, "test_accuracy": None}, rows[1]])
    assert_same_run(out, undisturbed)


def test_without_room_it_fails_in_a_sentence_and_loses_nothing(
    undisturbed: Path, data: Path, tmp_path: Path
) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    with process(train_debug, out, data, EPOCHS, 0, 40_000, log) as child:
        assert ended(child) == 2  # the first model finds room, its resume state does not
    assert "error: There is no room left" in log.read_text() and "Traceback" not in log.read_text()
    job = jobs.look(out)
    assert job.state == "failed" and "Free some space, then resume" in job.message
    with process(train_debug, out, data, EPOCHS, 0, 1) as child:
        assert ended(child) == 2  # no room for the status either: the old one stands
    assert jobs.look(out).state == "failed"
    with process(train_debug, out, data, EPOCHS) as child:
        assert ended(child) == 0
    assert_same_run(out, undisturbed)


def test_without_room_for_the_live_record_it_fails_in_a_sentence_too(
    undisturbed: Path, data: Path, tmp_path: Path
) -> None:
    out, log, room = tmp_path / "run", tmp_path / "log", 300_000
    out.mkdir()
    (out / runs.STOP).touch()
    with process(train_debug, out, data, EPOCHS) as child:
        assert ended(child) == 0
    assert max(file.stat().st_size for file in out.rglob("*")) < room
    record = (out / runs.STEPS).read_bytes()
    line = record.splitlines()[0] + b"\n"
    full = line * (room // len(line))  # room for half a line more
    (out / runs.STEPS).write_bytes(full)
    with process(train_debug, out, data, EPOCHS, 0, room, log) as child:
        assert ended(child) == 2
    assert "error: There is no room left" in log.read_text() and "Traceback" not in log.read_text()
    job = jobs.look(out)
    assert job.state == "failed" and "Free some space, then resume" in job.message
    assert (out / runs.STEPS).stat().st_size == room, "half a line is there"
    assert len(runs.read_steps(out, room)["step"]) == full.count(b"\n")
    (out / runs.STEPS).write_bytes(record + (out / runs.STEPS).read_bytes()[len(full) :])
    with process(train_debug, out, data, EPOCHS) as child:
        assert ended(child) == 0
    rows = runs.read_metrics(out)
    runs.write_metrics(out, [rows[0] | {"test_loss": None, "test_accuracy": None}, rows[1]])
    assert_same_run(out, undisturbed)


def test_a_directory_removed_while_it_trains_does_not_come_back(data: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    with process(train_debug, out, data, 1_000, 0, 0, log) as child:
        wait_for((out / runs.RESUME).exists)
        out.rename(tmp_path / "gone")
        assert ended(child) == 2
    assert not out.exists()
    assert f"error: {out} was removed while it was being trained" in log.read_text()
    with pytest.raises(RunError, match="no run in"):
        jobs.look(out)


def test_a_directory_replaced_while_it_trains_stays_as_it_is(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with process(train_debug, out, data, 1_000) as child:
        wait_for((out / runs.RESUME).exists)
        out.rename(tmp_path / "gone")
        out.mkdir()
        runs.write_json(out / runs.STATUS, {"state": "queued", "order": 4})
        assert not claims.is_held(out)
        assert ended(child) == 2
    assert [path.name for path in out.iterdir()] == [runs.STATUS]
    assert jobs.look(out).state == "queued"


def test_a_wish_to_end_is_not_lost_while_a_file_is_put_in_its_place(
    data: Path, tmp_path: Path
) -> None:
    """Whoever waits for the first status and then ends the trainer hits just that moment."""
    out = tmp_path / "run"
    with process(train_debug, out, data, EPOCHS, 0, 0, None, runs.STATUS) as child:
        assert ended(child) == 130
    assert jobs.look(out).state == "interrupted"


# ---- many processes ------------------------------------------------------------------------------


def hold_often(out: Path, busy: Path, held: Path) -> None:
    """Hold a run 40 times, each for a moment, and note when somebody else was there."""
    for _ in range(40):
        with claims.hold(out):
            busy.mkdir()  # raises if it is there
            time.sleep(0.001)
            busy.rmdir()
        with held.open("a") as file:
            file.write("x")


def look_often(out: Path) -> None:
    while True:
        claims.is_held(out)


def test_a_run_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    out, held = tmp_path / "run", tmp_path / "held"
    with process(look_often, out):
        names = [process(hold_often, out, tmp_path / "busy", held) for _ in range(3)]
        with names[0] as one, names[1] as two, names[2] as three:
            assert [ended(child) for child in (one, two, three)] == [0, 0, 0]
    assert held.read_text() == 120 * "x"


def keep_going_often(runs_dir: Path, worker: Path) -> None:
    jobs.sys.executable = str(worker)
    for _ in range(300):
        jobs.keep_going(runs_dir)
        time.sleep(0.003)


def test_a_runs_directory_has_one_worker_at_a_time(tmp_path: Path) -> None:
    """With a stand-in that only notes whether another one is at work."""
    worker = tmp_path / "worker"
    worker.write_text(
        '#!/bin/sh\nmkdir "$3/../busy" || echo overlap >> "$3/../said"\n'
        'sleep 0.05\nrmdir "$3/../busy"\necho worked >> "$3/../said"\n'
    )
    worker.chmod(0o755)
    waiting = tmp_path / "runs" / "run"
    runs.write_json(waiting / runs.STATUS, {"state": "queued", "order": 1})
    apps = [process(keep_going_often, waiting.parent, worker) for _ in range(3)]
    with apps[0] as one, apps[1] as two, apps[2] as three:
        assert [ended(app) for app in (one, two, three)] == [0, 0, 0]
    wait_for(lambda: not (tmp_path / "busy").exists())
    said = (tmp_path / "said").read_text().split()
    assert set(said) == {"worked"} and len(said) > 3


def start_often(runs_dir: Path) -> None:
    jobs.keep_going = lambda runs_dir: None
    for _ in range(10):
        jobs.start(runs_dir, debug(), 0, "the same name")


def test_runs_started_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    apps = [process(start_often, tmp_path) for _ in range(3)]
    with apps[0] as one, apps[1] as two, apps[2] as three:
        assert [ended(app) for app in (one, two, three)] == [0, 0, 0]
    found = jobs.list_jobs(tmp_path)
    assert [job.state for job in found] == 30 * ["queued"]
    assert [job.order for job in found] == list(range(1, 31))


# ---- the real worker -----------------------------------------------------------------------------


@pytest.fixture
def family(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runs directory for real workers and trainers; those left at the end are killed."""
    monkeypatch.setenv("VIT_DATA_DIR", str(data))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("VIT_TRAINING", raising=False)
    runs_dir = tmp_path / "runs"
    runs_dir.mkdir()
    yield runs_dir
    while alive := [*pids("vit.worker", runs_dir), *pids("vit.train", runs_dir)]:
        for pid in alive:
            kill(pid)
        time.sleep(0.05)


def pids(module: str, runs_dir: Path) -> list[int]:
    """The processes of a module at work in a runs directory."""
    found = []
    for candidate in psutil.process_iter(["cmdline", "status"]):
        line = candidate.info["cmdline"] or []
        alive = candidate.info["status"] != psutil.STATUS_ZOMBIE
        if alive and module in line and any(word.startswith(str(runs_dir)) for word in line):
            found.append(candidate.pid)
    return found


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_worker_trainer_and_both_killed_while_two_runs_wait(family: Path) -> None:
    recipe = replace(debug(), epochs=30)
    first = jobs.start(family, recipe, 3, "first")
    second = jobs.start(family, recipe, 3, "second")

    def trains(path: Path) -> bool:
        jobs.keep_going(family)
        return jobs.look(path).state == "running" and bool(pids("vit.train", family))

    def kill_all(*modules: str) -> None:
        killed = [pid for module in modules for pid in pids(module, family)]
        assert [psutil.Process(pid).nice() for pid in killed] == [10] * len(modules)
        for pid in killed:
            kill(pid)
        wait_for(lambda: not any(pid in pids(m, family) for m in modules for pid in killed))

    wait_for(lambda: trains(first))
    assert jobs.look(second).state == "queued"
    (trainer,) = pids("vit.train", family)
    kill_all("vit.worker")
    wait_for(lambda: trains(first) and pids("vit.worker", family))
    assert pids("vit.train", family) == [trainer], "the next worker lets it be"
    wait_for((first / runs.RESUME).exists)
    kill_all("vit.train")
    wait_for(lambda: jobs.look(first).state == "interrupted")
    jobs.resume(first)
    wait_for(lambda: trains(second) and (second / runs.RESUME).exists())
    kill_all("vit.worker", "vit.train")
    wait_for(lambda: jobs.look(second).state == "interrupted")
    jobs.resume(second)
    while {job.state for job in jobs.list_jobs(family)} != {"finished"}:
        jobs.keep_going(family)
        assert len(pids("vit.train", family)) <= 1
        time.sleep(0.1)
    assert_same_run(first, second)
    wait_for(lambda: not pids("vit.worker", family))


APP = """
import sys, time
from pathlib import Path
from vit import jobs
from vit.recipes import debug
from dataclasses import replace
runs_dir = Path(sys.argv[1])
run = jobs.start(runs_dir, replace(debug(), epochs=1), 0, "shared")
deadline = time.monotonic() + 240
while any(job.state in ("queued", "running") for job in jobs.list_jobs(runs_dir)):
    jobs.keep_going(runs_dir)
    assert sum(job.state == "running" for job in jobs.list_jobs(runs_dir)) <= 1
    assert time.monotonic() < deadline
    time.sleep(0.02)
"""


def test_two_apps_share_one_queue(family: Path) -> None:
    apps = [
        subprocess.Popen([sys.executable, "-c", APP, str(family)], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for app in apps:
            _, said = app.communicate(timeout=PATIENCE)
            assert app.returncode == 0, said.decode()
    finally:
        for app in apps:
            app.kill()
            app.wait()
    found = jobs.list_jobs(family)
    assert [job.state for job in found] == ["finished", "finished"]
    for job in found:
        log = (job.path / runs.LOG).read_text().splitlines()
        assert [line.partition(",")[0] for line in log] == ["epoch 1/1"], "trained once"
    assert_same_run(found[0].path, found[1].path)
    assert (family / jobs.WORKER_LOG).read_text() == ""


def read_often(runs_dir: Path, stop: Path) -> None:
    """Look at everything a page shows, again and again; whatever is not whole raises."""
    seen: dict[Path, int] = {}
    while not stop.exists():
        for job in jobs.list_jobs(runs_dir):
            steps, rows = runs.read_steps(job.path), runs.read_metrics(job.path)
            assert (np.diff(steps["step"]) > 0).all()
            assert [row["epoch"] for row in rows] == list(range(1, len(rows) + 1))
            assert len(rows) >= seen.get(job.path, 0), "an epoch was lost"
            seen[job.path] = len(rows)
            assert job.state in ("queued", "running", "finished"), job
            for epoch in runs.list_epochs(job.path):
                assert runs.load_run(job.path, epoch).epoch == epoch
            if rows:
                assert runs.load_run(job.path).epoch <= 3
        time.sleep(1)  # else there would be nothing left for training, which comes last


def test_two_workers_and_ten_readers_on_one_directory(family: Path, tmp_path: Path) -> None:
    recipe, stop = replace(debug(), epochs=3), tmp_path / "stop"
    keep_going = jobs.keep_going
    jobs.keep_going = lambda runs_dir: None
    try:
        paths = [jobs.start(family, recipe, 3, f"run {number}") for number in range(3)]
    finally:
        jobs.keep_going = keep_going
    with ExitStack() as stack:
        readers = [stack.enter_context(process(read_often, family, stop)) for _ in range(10)]
        command = [sys.executable, "-m", "vit.worker", str(family)]
        workers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
        for worker in workers:
            stack.callback(worker.kill)
        said = [worker.communicate(timeout=PATIENCE)[1].decode() for worker in workers]
        wait_for(lambda: {job.state for job in jobs.list_jobs(family)} == {"finished"})
        stop.touch()
        assert [ended(reader) for reader in readers] == 10 * [0]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert sorted(said) == ["", "Another worker is at it already.\n"]
    for path in paths:
        log = (path / runs.LOG).read_text().splitlines()
        assert [line.partition(",")[0] for line in log] == [f"epoch {n}/3" for n in (1, 2, 3)]
        assert_same_run(path, paths[0])
