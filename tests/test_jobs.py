"""The state shown is true, whatever files say; what is asked for happens once, or not at all."""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from huggingface_hub import constants

from tests import small_data
from tests.loopback_hub import LoopbackHub, loopback_hub
from tests.trainers import PATIENCE, ended, process, train_debug
from vit import claims, jobs, runs, train, worker
from vit.config import ViTConfig
from vit.recipes import RECIPES, debug
from vit.runs import RunError

DIGITS = Path(__file__).resolve().parents[1] / "checkpoints" / "digits"
ACTIONS: dict[str, Callable[[Path], object]] = {
    "start": lambda path: jobs.start(path.parent, debug()),
    "again": lambda path: jobs.again(path.parent, path, 5),
    "estimate": lambda path: jobs.estimate(debug(), 1_000),
    "pause": jobs.pause,
    "resume": jobs.resume,
    "stop": jobs.stop,
    "delete": jobs.delete,
    "label": lambda path: jobs.label(path, "other", ["tag"]),
    "keep_going": lambda path: jobs.keep_going(path.parent),
}


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of the workers that would have been started; none is."""
    started: list[list[str]] = []

    class Started:
        def __init__(self, command: list[str], **options: Any) -> None:
            started.append(command)

        def poll(self) -> int:
            return 0

    monkeypatch.setattr(jobs.subprocess, "Popen", Started)
    monkeypatch.delenv("VIT_TRAINING", raising=False)
    return started


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that waits."""
    return jobs.start(tmp_path / "runs", debug(), 3, "A run", ["one", "two"])


def told(path: Path, state: Any, **more: Any) -> None:
    runs.write_json(path / runs.STATUS, {"state": state, "step": 20, "total": 60, **more})


def ourselves() -> dict[str, Any]:
    return {"pid": os.getpid(), "started": psutil.Process().create_time()}


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (jobs.ACTION_LOCK, runs.LOCK)
    }


# ---- looking -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "wish", "held", "expected", "says"),
    [
        ("queued", "", False, "queued", ""),
        ("queued", "", True, "running", ""),
        ("queued", "pause", False, "paused", "Resume it"),
        ("queued", "pause", True, "running", "about to pause"),
        ("queued", "stop", False, "queued", ""),
        ("running", "", True, "running", ""),
        ("running", "pause", True, "running", "about to pause"),
        ("running", "stop", True, "running", "stops after the epoch"),
        ("running", "", False, "interrupted", "ended without a word at step 20 of 60"),
        ("running", "stop", False, "interrupted", "Resume it"),
        ("running", "pause", False, "paused", "Paused at step 20 of 60"),
        ("paused", "", False, "paused", "Resume it"),
        ("paused", "", True, "running", ""),
        ("interrupted", "", False, "interrupted", "It was interrupted at step 20 of 60"),
        ("failed", "", False, "failed", "It ended with an error at step 20 of 60"),
        ("failed", "", True, "running", ""),
        ("finished", "", False, "finished", "Stopped early"),
        ("finished", "pause", False, "finished", "Stopped early"),
        ("finished", "", True, "running", ""),
        ("nonsense", "", False, "interrupted", "missing or damaged"),
        (["running"], "", False, "interrupted", "missing or damaged"),
        (None, "", True, "running", ""),
    ],
)
def test_the_state_follows_from_lock_status_and_wish(
    run: Path, state: Any, wish: str, held: bool, expected: str, says: str
) -> None:
    told(run, state)
    if wish:
        (run / wish).touch()
    with claims.hold(run) if held else nullcontext():
        job = jobs.look(run)
    assert job.state == expected and says in job.message and (says or not job.message)
    assert (job.step, job.total) == (20, 60)
    assert job.wish == ("" if expected in ("paused", "finished") else wish)


def test_a_shipped_run_is_finished_and_nothing_is_written_to_see_that() -> None:
    before = sorted(path.name for path in DIGITS.iterdir())
    job = jobs.look(DIGITS)
    assert (job.state, job.name, job.message) == ("finished", "digits", "")
    assert sorted(path.name for path in DIGITS.iterdir()) == before


@pytest.mark.parametrize(
    "process_said",
    [
        {"pid": os.getpid(), "started": 1.0},
        {"pid": os.getpid(), "started": psutil.Process().create_time() - 60},
        {"pid": os.getpid(), "started": str(psutil.Process().create_time())},
        {"pid": os.getpid()},
        {"pid": str(os.getpid()), "started": 1.0},
        {"pid": True, "started": 1.0},
        {"pid": -1, "started": 1.0},
        {"pid": 0, "started": 1.0},
        {"pid": 2**22 + 1, "started": 1.0},
        {"pid": 10**30, "started": 1.0},
        {"pid": 1.5, "started": float("nan")},
        {},
    ],
)
def test_a_reused_or_damaged_process_number_is_no_trainer(
    run: Path, process_said: dict[str, Any]
) -> None:
    told(run, "running", heartbeat=time.time(), **process_said)
    assert not claims.is_held(run) and jobs.look(run).state == "interrupted"


def test_a_zombie_is_no_trainer(run: Path) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    try:
        deadline = time.monotonic() + PATIENCE
        while psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
        told(run, "running", pid=child, started=psutil.Process(child).create_time())
        assert jobs.look(run).state == "interrupted"
    finally:
        os.waitpid(child, 0)


@pytest.mark.parametrize("jump", [-(10**6), 0, 10**6])
def test_a_clock_that_jumps_changes_nothing(run: Path, jump: int) -> None:
    now = time.time() + jump
    started = psutil.Process().create_time() + jump  # as it would be read after the jump
    with claims.hold(run):
        told(run, "running", pid=os.getpid(), started=started, heartbeat=now)
        assert jobs.look(run).state == "running"
    told(run, "running", pid=os.getpid(), started=started + 60, heartbeat=now)
    assert jobs.look(run).state == "interrupted"


def test_the_status_is_written_though_the_clock_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with train.Report(tmp_path / "run", enabled=True) as report:
        report.begin(10, 0)
        for step, jump in enumerate((-(10**6), 10**6, -(10**6)), start=1):
            now = time.time() + jump
            monkeypatch.setattr(train.time, "time", lambda now=now: now)
            report.advance(step)
            report("running")
            assert runs.read_status(tmp_path / "run")["step"] == step
            monkeypatch.undo()


def test_a_trainer_is_seen_though_its_lock_file_was_deleted(run: Path) -> None:
    with claims.hold(run):
        told(run, "running", **ourselves())
        (run / runs.LOCK).unlink()
        assert jobs.look(run).state == "running"
        with pytest.raises(RunError, match=f"being trained by process {os.getpid()}"):
            jobs.delete(run)
    assert (run / runs.REQUEST).exists()


def test_without_locks_process_and_start_time_decide(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, mode: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(claims.fcntl, "flock", no_locks)
    assert jobs.look(run).state == "queued"
    told(run, "running", **ourselves())
    assert jobs.look(run).state == "running"
    told(run, "running", pid=os.getppid(), started=psutil.Process(os.getppid()).create_time())
    with pytest.raises(RunError, match="is being trained"), claims.hold(run):
        pass
    monkeypatch.setattr(claims, "PATIENCE", 0.0)
    told(run, "queued")
    with pytest.raises(RunError, match="No locks available"):
        jobs.keep_going(run.parent)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "binary": lambda content: b"\xff\x00\x93NUMPY\x80" * 50,
    "wrong types": lambda content: (
        b'{"state": 3, "step": "x", "total": [], "recipe": 5, "name": 7}'
    ),
    "a list": lambda content: b"[1, 2]",
    "a number": lambda content: b"7",
    "too deep": lambda content: b"[" * 100_000,
    "not finite": lambda content: b'{"state": "running", "step": NaN, "total": 1e999, "pid": NaN}',
}


@pytest.fixture(scope="module")
def half_trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs that was paused after one, started by the app."""
    folder = tmp_path_factory.mktemp("half")
    runs_dir = folder / "runs"
    path = runs_dir / "a-run"
    request = {"name": "A run", "tags": ["t"], "recipe": debug().to_dict(), "seed": 3}
    path.mkdir(parents=True)
    runs.write_json(path / runs.REQUEST, request)
    (path / runs.STOP).touch()
    with process(train_debug, path, folder, 2) as child:
        assert ended(child) == 0
    told(path, "paused", total=40)
    return path


@pytest.mark.parametrize("damage", [*DAMAGE, "missing", "a folder"])
@pytest.mark.parametrize(
    "name",
    [runs.STATUS, runs.REQUEST, runs.CONFIG, runs.METRICS, runs.RESUME, runs.MODEL]
    + ["snapshots/epoch-0001.safetensors", runs.STEPS, runs.LOCK, runs.PAUSE, runs.LOG],
)
def test_a_damaged_file_costs_no_more_than_itself(
    half_trained: Path, tmp_path: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.copytree(half_trained, tmp_path / "runs" / "a-run")
    other = jobs.start(path.parent, debug(), 0, "other")
    file = path / name
    content = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    if damage == "a folder":
        file.mkdir()
    elif damage != "missing":
        file.write_bytes(DAMAGE[damage](content))

    job = jobs.look(path)
    unreadable = name == runs.STATUS
    if unreadable and damage == "not finite":
        assert job.state == "interrupted"  # the state can be read, and no process lives
    else:
        assert job.state == ("finished" if unreadable else "paused")  # it has predictions already
    assert (job.step, job.total) == ((0, 0) if unreadable else (20, 40))
    assert job.name == ("a-run" if name == runs.REQUEST else "A run")
    assert [job.path for job in jobs.list_jobs(path.parent)] == [other, path]

    # Going on either works or is refused in one sentence; it never ends in a traceback.
    try:
        code = train.main(
            [
                *(str(path / runs.CONFIG), "--resume", "--data-dir", str(half_trained.parents[1])),
                *("--out", str(path)),
            ]
        )
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    if code == 2:
        assert "error: " in said.splitlines()[-1]
    unwritable = damage == "a folder" and name in (
        *(runs.STATUS, runs.MODEL, runs.STEPS, runs.LOCK, runs.PAUSE),
    )
    needed = name in (runs.CONFIG, runs.METRICS, runs.RESUME)
    if name == runs.RESUME and damage == "missing":
        assert code == 0  # as after a kill in the first epoch, which is all that is trained again
    elif needed or unwritable:
        assert code == 2
    elif name == runs.PAUSE and damage != "missing":
        assert code == 130
    else:
        assert code == 0 and jobs.look(path).state == "finished"
        assert runs.load_run(path).model
        steps = [30.0, 40.0] if name == runs.STEPS else [10.0, 20.0, 30.0, 40.0]
        if damage != "half":
            assert runs.read_steps(path)["step"].tolist() == steps


def test_a_damaged_queue_lets_the_others_through(run: Path) -> None:
    second = jobs.start(run.parent, debug(), 0, "second")
    runs.write_json(run / runs.STATUS, {"state": "queued", "order": "first"})
    assert [job.path for job in jobs.list_jobs(run.parent)] == [run, second]
    (run / runs.STATUS).write_bytes(b"\x00")
    assert jobs.look(run).state == "interrupted"
    jobs.resume(run)
    assert [job.path for job in jobs.list_jobs(run.parent)] == [second, run]


def test_a_folder_that_is_no_run_is_none(run: Path) -> None:
    (run.parent / "empty").mkdir()
    (run.parent / "file").write_text("{}")
    shutil.copytree(run, run.parent / ".hidden")
    assert [job.path for job in jobs.list_jobs(run.parent)] == [run]
    assert jobs.list_jobs(run.parent / "nowhere") == []
    for path in (run.parent / "empty", run.parent / "file", run.parent / "nowhere"):
        with pytest.raises(RunError, match="no run in"):
            jobs.look(path)


# ---- other than training steps ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told_task", "expected"),
    [
        ({"what": "Fetching CIFAR-10", "done": 3, "total": 9}, ("Fetching CIFAR-10", 3, 9)),
        ({"what": "Testing", "done": -1, "total": "x"}, ("Testing", 0, 0)),
        ({"what": "a\nb"}, ("a b", 0, 0)),
        ({"what": ""}, None),
        ({"what": 3, "done": 3, "total": 9}, None),
        (["what"], None),
        (None, None),
    ],
)
def test_a_task_is_shown_while_it_runs(
    run: Path, told_task: Any, expected: tuple[str, int, int] | None
) -> None:
    for state in ("queued", "running"):
        told(run, state, task=told_task)
        assert jobs.look(run).task is None
        with claims.hold(run):
            assert jobs.look(run).task == (expected and jobs.Task(*expected))


def test_fetching_reading_and_testing_are_told_and_the_first_can_be_paused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ViTConfig(embed_dim=16, depth=1, num_heads=2)
    recipe = replace(debug(), dataset="cifar10", model=model, epochs=1, batch_size=16)
    monkeypatch.setattr(train, "HEARTBEAT", 0.0)
    tasks: list[jobs.Task | None] = []
    write = runs.write_json

    def noting(file: Path, values: Any) -> None:
        write(file, values)
        if file.name == runs.STATUS:
            tasks.append(jobs.look(run).task)

    monkeypatch.setattr(train.runs, "write_json", noting)
    pictures = {split: small_data.noise(40) for split in ("train", "test")}
    files = {
        f"plain_text/{split}-00000-of-00001.parquet": small_data.parquet_bytes(*pictures[split])
        for split in pictures
    }
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with loopback_hub(LoopbackHub(files)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        jobs.pause(run)
        with claims.hold(run):
            assert jobs.look(run).message.startswith("It is about to pause")
        with pytest.raises(KeyboardInterrupt):
            train.train(recipe, run, data_dir=tmp_path / "data")
        assert jobs.look(run).state == "paused" and jobs.look(run).wish == ""
        assert not (run / runs.CONFIG).exists() and tasks == [None]
        jobs.resume(run)
        train.train(recipe, run, data_dir=tmp_path / "data")
    assert jobs.look(run).state == "finished"
    whats = list(dict.fromkeys(task and task.what for task in tasks[1:]))
    assert whats == [None, "Fetching CIFAR-10", "Reading the pictures", "Testing what was learned"]
    assert {task.total for task in tasks if task and task.what[:4] == "Fetc"} == set(
        map(len, files.values())
    )
    assert {(task.done, task.total) for task in tasks if task and task.what[:4] == "Read"} == {
        (40, 40)
    }
    assert tasks[-1] is None


def test_a_run_that_is_not_begun_keeps_what_its_status_says(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "HEARTBEAT", 0.0)
    told(run, "finished", order=7)
    with train.Report(run, enabled=True) as report:
        report.progress("Fetching CIFAR-10")(1, 2)
        status = runs.read_status(run)
        assert (status["state"], status["order"]) == ("finished", 7)
        assert jobs.look(run).state == "running" and jobs.look(run).task.done == 1
    assert (jobs.look(run).state, jobs.look(run).task) == ("finished", None)
    new = run.parent / "new"
    with train.Report(new, enabled=True) as report:
        report.progress("Fetching CIFAR-10")(1, 2)
    assert [file.name for file in new.iterdir()] == [runs.LOCK], "no run yet"


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folder", "shown"),
    [
        ("../../etc/passwd", "etc-passwd", "../../etc/passwd"),
        ("/absolute", "absolute", "/absolute"),
        ("..", "run", ".."),
        ("", "debug", "debug"),
        ("   ", "debug", "debug"),
        ("Größe × 2", "groe-2", "Größe × 2"),
        ("猫", "run", "猫"),
        (".worker.lock", "worker-lock", ".worker.lock"),
        ("a\nb\x00c\u202e", "a-bc", "a bc"),
        ("<script>alert(1)</script>", "script-alert-1-script", "<script>alert(1)</script>"),
        ("x" * 500, "x" * 40, "x" * 80),
    ],
)
def test_a_name_becomes_a_safe_folder(tmp_path: Path, name: str, folder: str, shown: str) -> None:
    runs_dir = tmp_path / "runs"
    path = jobs.start(runs_dir, debug(), 0, name)
    assert path == runs_dir / folder and jobs.look(path).name == shown
    assert [item.name for item in tmp_path.iterdir()] == ["runs"]
    assert jobs.start(runs_dir, debug(), 0, name) == runs_dir / f"{folder}-2"
    assert jobs.find(runs_dir, folder) == path


@pytest.mark.parametrize(
    "folder", ["", ".", "..", "../runs/a-run", "a-run/", "a-run/../a-run", "*", "A-RUN", "a\0b"]
)
def test_a_folder_named_by_a_stranger_is_found_only_as_it_is(run: Path, folder: str) -> None:
    assert jobs.find(run.parent, "a-run") == run
    with pytest.raises(RunError, match="no run of that name"):
        jobs.find(run.parent, folder)


def test_names_and_tags_are_kept_in_one_line(run: Path) -> None:
    jobs.label(run, " new\tname ", ["b\nc", "", "b c", "x" * 99])
    job = jobs.look(run)
    assert (job.name, job.tags) == ("new name", ("b c", "x" * 40))
    assert jobs.settings(run) == (debug(), 3) and job.state == "queued"
    jobs.label(run, "", [])
    assert (jobs.look(run).name, jobs.look(run).tags) == ("a-run", ())


# ---- acting --------------------------------------------------------------------------------------


def test_starting_queues_behind_the_others(tmp_path: Path, workers: list[list[str]]) -> None:
    paths = [jobs.start(tmp_path, debug(), seed, "x", ["a", "a"]) for seed in range(3)]
    found = jobs.list_jobs(tmp_path)
    assert [job.path for job in found] == paths
    assert [job.order for job in found] == [1, 2, 3]
    assert [jobs.settings(path) for path in paths] == [(debug(), seed) for seed in range(3)]
    assert found[0].tags == ("a",) and found[0].state == "queued"
    assert workers[0][1:4] == ["-m", "vit.worker", str(tmp_path)]


@pytest.mark.parametrize(
    ("recipe", "seed", "says"),
    [
        (replace(debug(), epochs=0), 0, "epochs must be from 1"),
        (replace(debug(), learning_rate=float("nan")), 0, "learning_rate must be from"),
        (replace(debug(), name="../x"), 0, "name must be"),
        (debug(), -1, "seed must be a whole number"),
        (debug(), 2**32, "seed must be a whole number"),
        (debug(), 1.5, "seed must be a whole number"),
        (replace(debug(), model=ViTConfig(embed_dim=8192, depth=128)), 0, "GB of memory"),
        (replace(RECIPES["system_c"](), batch_size=100_000), 0, "GB of memory"),
    ],
)
def test_a_run_that_makes_no_sense_is_not_started(
    tmp_path: Path, recipe: Any, seed: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = psutil.virtual_memory()._replace(total=16 * 10**9)
    monkeypatch.setattr(jobs.psutil, "virtual_memory", lambda: memory)
    with pytest.raises(RunError, match=says):
        jobs.start(tmp_path / "runs", recipe, seed)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", RECIPES)
def test_every_named_recipe_fits_into_8_gb(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = psutil.virtual_memory()._replace(total=8 * 10**9)
    monkeypatch.setattr(jobs.psutil, "virtual_memory", lambda: memory)
    assert jobs.look(jobs.start(tmp_path, RECIPES[name]())).state == "queued"


def test_the_same_again_with_another_seed(run: Path, half_trained: Path) -> None:
    for source, expected in ((half_trained, replace(debug(), epochs=2)), (DIGITS, None)):
        path = jobs.again(run.parent, source, 8)
        assert path.parent == run.parent
        recipe, seed = jobs.settings(path)
        assert seed == 8 and recipe == (expected or jobs.settings(DIGITS)[0])
    once = jobs.again(run.parent, run, 8)
    twice = jobs.again(run.parent, once, 9)
    assert jobs.look(once).name == "A run (seed 8)" and jobs.look(twice).name == "A run (seed 9)"
    assert jobs.look(twice).tags == ("one", "two")


def test_pausing_and_resuming_one_that_waits(run: Path) -> None:
    second = jobs.start(run.parent, debug(), 0, "second")
    jobs.pause(run)
    jobs.pause(run)
    assert jobs.look(run).state == "paused"
    jobs.resume(run)
    assert [job.path for job in jobs.list_jobs(run.parent)] == [second, run]
    jobs.resume(run)
    assert jobs.look(run).state == "queued" and jobs.look(run).wish == ""


def test_pausing_and_resuming_one_that_runs(run: Path, workers: list[list[str]]) -> None:
    with claims.hold(run):
        told(run, "running", **ourselves())
        before = files(run)
        jobs.pause(run)
        assert (jobs.look(run).state, jobs.look(run).wish) == ("running", "pause")
        jobs.resume(run)
        assert jobs.look(run).wish == "" and files(run) == before
        jobs.stop(run)
        assert jobs.look(run).wish == "stop"
        jobs.pause(run)
        assert jobs.look(run).wish == "pause"
        jobs.stop(run)
        assert jobs.look(run).wish == "stop"


@pytest.mark.parametrize("state", ["paused", "interrupted", "failed", "running"])
def test_resuming_one_that_ended_queues_it(run: Path, state: str) -> None:
    told(run, state, error="Something.")
    (run / runs.STOP).touch()
    jobs.resume(run)
    job = jobs.look(run)
    assert (job.state, job.wish, job.step, job.total, job.message) == ("queued", "", 20, 60, "")


def test_a_finished_run_is_not_resumed_unless_stopped_early(run: Path) -> None:
    told(run, "finished")
    jobs.resume(run)
    assert jobs.look(run).state == "queued"
    told(run, "finished", step=60)
    jobs.pause(run)
    jobs.stop(run)
    assert jobs.look(run).state == "finished" and jobs.look(run).wish == ""
    with pytest.raises(RunError, match="is finished"):
        jobs.resume(run)


@pytest.mark.parametrize("state", ["queued", "paused", "interrupted", "failed", "running"])
def test_stopping_one_that_does_not_run_needs_an_epoch(run: Path, state: str) -> None:
    told(run, state, order=1)
    with pytest.raises(RunError, match="has not finished an epoch"):
        jobs.stop(run)
    (run / runs.RESUME).touch()
    (run / runs.PAUSE).touch()
    jobs.stop(run)
    assert (jobs.look(run).state, jobs.look(run).wish) == ("queued", "stop")


def test_deleting_leaves_nothing_and_is_refused_while_it_runs(run: Path, tmp_path: Path) -> None:
    other = jobs.start(run.parent, debug(), 0, "other")
    with claims.hold(run):
        before = files(run)
        with pytest.raises(RunError, match="is being trained"):
            jobs.delete(run)
        assert files(run) == before
    leftover = run.parent / jobs.TRASH / "killed-while-deleting"
    leftover.mkdir(parents=True)
    jobs.delete(run)
    assert not run.exists() and not leftover.exists()
    assert [job.path for job in jobs.list_jobs(run.parent)] == [other]
    for act in (jobs.delete, jobs.pause, jobs.resume, jobs.stop, jobs.look):
        with pytest.raises(RunError, match="no run in"):
            act(run)
        assert not run.exists()


def test_deleting_a_link_leaves_what_it_points_at(run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    run.rename(elsewhere)
    run.symlink_to(elsewhere)
    jobs.delete(run)
    assert not run.is_symlink() and (elsewhere / runs.REQUEST).exists()


@pytest.mark.parametrize("action", ACTIONS)
def test_training_off_refuses_everything(
    run: Path, action: str, monkeypatch: pytest.MonkeyPatch, workers: list[list[str]]
) -> None:
    workers.clear()
    before = files(run.parent)
    for value in ("off", "OFF"):
        monkeypatch.setenv("VIT_TRAINING", value)
        with pytest.raises(RunError, match="VIT_TRAINING=off"):
            ACTIONS[action](run)
        with pytest.raises(SystemExit) as end:
            worker.main([str(run.parent)])
        assert end.value.code == 2
    assert files(run.parent) == before and not workers
    assert jobs.look(run).state == "queued" and jobs.list_jobs(run.parent)


@pytest.mark.parametrize("action", ["start", "again", "resume", "label"])
def test_without_room_an_action_says_so_and_leaves_things_as_they_were(
    run: Path, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(run, "paused")
    before = files(run.parent)

    def full(file: Path, values: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(jobs.runs, "write_json", full)
    with pytest.raises(RunError, match=r"No space left on device.*Free some space"):
        ACTIONS[action](run)
    assert files(run.parent) == before
    assert [job.path for job in jobs.list_jobs(run.parent)] == [run]


def test_a_full_disk_is_named_as_the_likely_reason(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(run)._replace(free=10**6)
    monkeypatch.setattr(jobs.shutil, "disk_usage", lambda path: usage)
    assert "waits for room: the disk is full" in jobs.look(run).message
    told(run, "running")
    assert "The disk is full. Free some space, then resume" in jobs.look(run).message


def test_two_actions_at_once_take_turns(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with jobs.FileLock(run.parent / jobs.ACTION_LOCK):
        monkeypatch.setattr(jobs, "FileLock", lambda path, timeout: filelock_that_gives_up(path))
        with pytest.raises(RunError, match="Somebody else is changing"):
            jobs.pause(run)
    assert jobs.look(run).state == "queued"


def filelock_that_gives_up(path: Path) -> Any:
    from filelock import FileLock

    return FileLock(path, timeout=0.05)


# ---- the worker ----------------------------------------------------------------------------------


def test_no_worker_is_started_without_need(run: Path, workers: list[list[str]]) -> None:
    workers.clear()
    lock = jobs.take_worker_lock(run.parent)
    assert lock is not None
    jobs.keep_going(run.parent)
    assert not workers, "there is one"
    os.close(lock)
    jobs.pause(run)
    jobs.keep_going(run.parent)
    assert not workers, "nothing waits"
    jobs.keep_going(run.parent / "nowhere")
    jobs.resume(run)
    assert len(workers) == 1


def test_looking_at_a_hundred_runs_is_cheap(run: Path, workers: list[list[str]]) -> None:
    """Cheap enough for every tick of a page: ten times what it takes would still be."""
    for number in range(100):
        told_run = shutil.copytree(run, run.parent / f"run-{number}")
        told(told_run, "finished")
    told(run, "finished")
    workers.clear()
    started = time.process_time()
    jobs.keep_going(run.parent)
    jobs.list_jobs(run.parent)
    assert time.process_time() - started < 0.5 and not workers


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, workers: list[list[str]]) -> Iterator[None]:
    """Processes are started for real."""
    monkeypatch.undo()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(worker, "POLL", 0.02)
    monkeypatch.setattr(worker, "RETRY", 0.02)
    yield


def stand_in(path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let ``script`` be run instead of a trainer."""
    program = path.parent / "trainer.sh"
    program.write_text(f"#!/bin/sh\ncd '{path}'\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(worker.sys, "executable", str(program))


def work_off(runs_dir: Path) -> None:
    """Be the worker of a runs directory, until nothing waits there."""
    lock = jobs.take_worker_lock(runs_dir)
    assert lock is not None
    worker.work(runs_dir, lock)
    os.close(lock)


@pytest.mark.parametrize(
    ("script", "state", "says"),
    [
        ("echo 'error: No data. Get some.' >&2; exit 2", "failed", "No data. Get some."),
        ("echo 'python -m vit.train: error: Bad. Mend it.' >&2; exit 2", "failed", "Bad. Mend it."),
        ("printf 'Traceback\\nKeyError: 3\\n' >&2; exit 1", "failed", "unexpectedly (KeyError: 3)"),
        ("exit 1", "failed", "it said nothing"),
        ("kill -9 $$", "interrupted", "Resume it"),
        ("touch pause; kill -9 $$", "paused", "Resume it"),
        ("exit 130", "interrupted", "Resume it"),
        ("""echo '{"state": "running"}' > status.json; kill -9 $$""", "interrupted", "Resume it"),
        ("""echo '{"state": "running"}' > status.json; exit 1""", "failed", "said nothing"),
        ("""echo '{"state": "finished"}' > status.json""", "finished", ""),
        ("printf '\\377\\000' > status.json; exit 1", "interrupted", "damaged"),
    ],
)
def test_a_trainer_that_ends_early_leaves_the_queue(
    run: Path, real: None, monkeypatch: pytest.MonkeyPatch, script: str, state: str, says: str
) -> None:
    (run / runs.LOG).write_text("error: of an earlier time\n")
    stand_in(run, monkeypatch, script)
    work_off(run.parent)
    job = jobs.look(run)
    assert job.state == state and says in job.message and "\n" not in job.message


def test_a_trainer_leaves_one_core_to_the_pages(
    run: Path, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(run, monkeypatch, "echo $OMP_NUM_THREADS > threads; echo $@ > arguments")
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(jobs.torch, "get_num_threads", lambda: 8)
    worker._train(run)
    assert (run / "threads").read_text() == "7\n"
    words = (run / "arguments").read_text().split()
    assert words[:3] == ["-m", "vit.train", str(run / runs.REQUEST)] and "--resume" not in words
    monkeypatch.setattr(jobs.torch, "get_num_threads", lambda: 1)
    runs.write_json(run / runs.CONFIG, {})
    told(run, "queued", order=1)
    worker._train(run)
    assert (run / "threads").read_text() == "1\n"
    words = (run / "arguments").read_text().split()
    assert words[2] == str(run / runs.CONFIG) and "--resume" in words


def test_while_there_is_no_room_to_note_an_end_it_is_tried_once(
    run: Path, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(run, monkeypatch, "echo x >> tries; exit 2")
    tries, write = 0, runs.write_json

    def full_at_first(file: Path, values: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, values)

    monkeypatch.setattr(runs, "write_json", full_at_first)
    work_off(run.parent)
    assert jobs.look(run).state == "failed" and tries == 4
    assert (run / "tries").read_text() == "x\n"


def test_a_run_removed_under_its_trainer_does_not_come_back(
    run: Path, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(run, monkeypatch, "rm -r ../a-run; exit 2")
    work_off(run.parent)
    assert not run.exists()


def test_a_worker_whose_directory_was_replaced_leaves(
    run: Path, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(run, monkeypatch, "touch trained")
    lock = jobs.take_worker_lock(run.parent)
    assert lock is not None
    (run.parent / jobs.WORKER_LOCK).unlink()
    worker.work(run.parent, lock)
    os.close(lock)
    assert jobs.look(run).state == "queued" and not (run / "trained").exists()


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        ("signal.signal(signal.SIGTERM, signal.default_int_handler)", 1),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", -9),
    ],
)
def test_a_trainer_that_hangs_is_made_to_pause(
    run: Path, real: None, monkeypatch: pytest.MonkeyPatch, script: str, ends: int
) -> None:
    monkeypatch.setattr(worker, "GRACE", 0.3)
    code = f"import signal, sys, time; {script}; print('up', flush=True)\n"
    code += "try: time.sleep(600)\nexcept KeyboardInterrupt: sys.exit(1)"
    hanging = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert hanging.stdout is not None and hanging.stdout.readline() == b"up\n"
        (run / runs.PAUSE).touch()
        worker._wait(hanging, run)
        assert hanging.returncode == ends
    finally:
        hanging.kill()
        hanging.wait()


def test_a_lock_that_was_handed_over_is_held_without_a_gap(run: Path) -> None:
    lock = claims.take(run)
    claims.adopt(run, os.dup(lock))
    os.close(lock)
    assert claims.is_held(run)
    with claims.hold(run):
        assert claims.is_held(run)
        claims.check(run)
    assert not claims.is_held(run)
    claims.adopt(run, claims.take(run))
    shutil.rmtree(run)
    with pytest.raises(RunError, match="was removed"), claims.hold(run):
        pass
    assert not run.exists()


def test_the_command_line_is_refused_while_a_run_is_trained(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(claims, "PATIENCE", 0.2)
    with claims.hold(run):
        before = files(run)
        assert train.main(["debug", "--out", str(run), "--device", "cpu"]) == 2
        assert files(run) == before
    said = capsys.readouterr().err
    assert "is being trained" in said and "Pause it" in said and len(said.splitlines()) == 1


def test_a_second_worker_leaves_at_once(
    run: Path, real: None, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = jobs.take_worker_lock(run.parent)
    assert lock is not None
    assert worker.main([str(run.parent)]) == 0
    assert "Another worker" in capsys.readouterr().err
    os.close(lock)
