"""The house rules, read off the source: who may import whom, and what no file may do."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("vit", "figures", "ui", "pages", "tests", "benchmarks")
SOURCES = sorted(
    [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
)
TREES = {path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in SOURCES}
PAGES = [path for path in TREES if path.parts[0] in ("app.py", "pages")]
OWN = {"vit", "figures", "ui", "pages", "app"}

# What a folder may import of the project's own, besides itself; tests and benchmarks, anything.
MAY_IMPORT_OWN = {
    "vit": set(),
    "figures": set(),
    "ui": {"vit", "figures"},
    "pages": {"vit", "figures", "ui"},
    "app.py": {"vit", "figures", "ui"},
}
# Inside vit/, the files a learner reads first stand on nothing but each other.
CORE = {
    "vit/config.py": set(),
    "vit/hooks.py": {"vit.config"},
    "vit/model.py": {"vit.config", "vit.hooks"},
}
ANALYSIS_MAY = ("vit.config", "vit.hooks", "vit.model", "vit.by_hand", "vit.analysis")
OLD_ARGUMENTS = {"use_container_width", "use_column_width"}
# st.navigation is not old, but with a pages/ folder it makes a deep link skip app.py.
OLD_CALLS = re.compile(
    r"st\.(cache|navigation|(beta|experimental)_\w+)$|.*\.(add_rows|components\.v1)$"
)


def imports(path: Path, tree: ast.AST) -> Iterator[str]:
    """The dotted names that a file imports, at its top or later: ``from a import b`` gives a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = path.with_suffix("").parts[: -node.level] if node.level else ()
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def dotted(node: ast.expr) -> str:
    """``np.load`` for the expression np.load; the last name alone when what precedes is no name."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    return ((dotted(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_imports_between_the_folders_run_one_way() -> None:
    wrong = [
        f"{path} imports {name}"
        for path, tree in TREES.items()
        if (allowed := MAY_IMPORT_OWN.get(path.parts[0])) is not None
        for name in imports(path, tree)
        if (top := name.partition(".")[0]) in OWN and top not in allowed | {path.parts[0]}
    ]
    assert not wrong, "\n".join(wrong)


def test_vit_knows_nothing_of_the_app() -> None:
    wrong = [
        f"{path} imports {name}"
        for path, tree in TREES.items()
        if path.parts[0] == "vit"
        for name in imports(path, tree)
        if name.partition(".")[0] in {"streamlit", "plotly", "timm"}
    ]
    assert not wrong, "\n".join(wrong)


def test_figures_take_numpy_and_give_plotly() -> None:
    allowed = {"numpy", "plotly", "figures"} | sys.stdlib_module_names
    wrong = [
        f"{path} imports {name}"
        for path, tree in TREES.items()
        if path.parts[0] == "figures"
        for name in imports(path, tree)
        if name.partition(".")[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_config_hooks_model_and_analysis_build_on_each_other_in_that_order() -> None:
    wrong = [
        f"{path} imports {name}"
        for path, tree in TREES.items()
        if path.as_posix() in CORE or path.parts[:2] == ("vit", "analysis")
        for name in imports(path, tree)
        if within(name, "vit")
        and not any(within(name, near) for near in CORE.get(path.as_posix(), ANALYSIS_MAY))
    ]
    assert not wrong, "\n".join(wrong)


def test_attention_and_encoder_are_written_here() -> None:
    ready_made = re.compile(r"(MultiheadAttention|Transformer\w*(Layer|Encoder|Decoder)|timm)$")
    wrong = [
        f"{path}:{node.lineno} uses {node.attr}"
        for path, tree in TREES.items()
        if path.parts[0] == "vit"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ready_made.match(node.attr)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_unpickles() -> None:
    """Weights are safetensors, arrays are plain; only a restricted Unpickler may read a pickle."""
    wrong = []
    for path, tree in TREES.items():
        for name, call in calls(tree):
            if name in {"pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"}:
                wrong.append(f"{path}:{call.lineno} calls {name}")
            for keyword in call.keywords:
                if keyword.arg == "allow_pickle" and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                ):
                    wrong.append(f"{path}:{call.lineno} allows pickles in {name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and "pickle.Unpickler" in map(dotted, node.bases):
                methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                if "find_class" not in methods:
                    wrong.append(f"{path}:{node.lineno} {node.name} lets a pickle name any class")
        names = set(imports(path, tree))
        unsafe = {"pickle.load", "pickle.loads", "pickle.Unpickler", "joblib", "dill", "torch.load"}
        wrong += [f"{path} imports {name}" for name in names & unsafe]
    assert not wrong, "\n".join(wrong)


def test_no_name_that_streamlit_has_retired() -> None:
    wrong = []
    for path, tree in TREES.items():
        if path.parts[0] not in ("ui", "pages", "app.py", "benchmarks"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg in OLD_ARGUMENTS:
                wrong.append(f"{path}:{node.value.lineno} {node.arg}=")
            elif isinstance(node, ast.Attribute) and OLD_CALLS.match(dotted(node)):
                wrong.append(f"{path}:{node.lineno} {dotted(node)}")
        wrong += [
            f"{path} imports {name}"
            for name in imports(path, tree)
            if within(name, "streamlit.components.v1")
        ]
    assert not wrong, "\n".join(wrong)


def test_the_app_asks_no_other_machine_for_anything() -> None:
    """``:material/…:`` icons and absolute addresses in the board's files would be fetched."""
    wrong = [
        f"{path}:{node.lineno} {node.value[:60]}"
        for path, tree in TREES.items()
        if path.parts[0] in ("ui", "pages", "app.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and ":material/" in node.value
    ]
    loads = re.compile(r"(?:src|href|url|import|fetch)\W{1,3}(?:https?:)?//", re.IGNORECASE)
    wrong += [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for kind in ("*.js", "*.css", "*.html")
        for path in (ROOT / "ui").rglob(kind)
        for found in loads.finditer(path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_page_is_short() -> None:
    lines = {str(path): len((ROOT / path).read_text("utf-8").splitlines()) for path in PAGES}
    assert {path: count for path, count in lines.items() if count > 120} == {}


def test_nothing_is_left_for_later() -> None:
    mark = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
    kinds = {".py", ".js", ".css", ".html", ".md", ".toml", ".txt", ""}
    files = [
        path
        for folder in (*FOLDERS, "docs", ".streamlit", ".ci")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in kinds
    ]
    files += [path for path in ROOT.iterdir() if path.is_file() and path.suffix in kinds]
    wrong = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if mark.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_test_can_fail_and_none_is_skipped() -> None:
    """A test asserts, expects an error, or calls a function of the tests that does."""
    functions = [
        (path, node)
        for path, tree in TREES.items()
        if path.parts[0] == "tests"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    checking = {"raises", "warns", "expect", "fail"}
    found = -1
    while found != len(checking):
        found = len(checking)
        checking |= {
            node.name
            for _, node in functions
            if any(isinstance(part, ast.Assert) for part in ast.walk(node))
            or any(is_check(name, checking) for name, _ in calls(node))
        }
    wrong = [
        f"{path}:{node.lineno} {node.name} asserts nothing"
        for path, node in functions
        if node.name.startswith("test_") and node.name not in checking
    ]
    skips = {"pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"}
    skips |= {"pytest.skip", "pytest.xfail", "pytest.importorskip"}
    wrong += [
        f"{path}:{node.lineno} {dotted(node)}"
        for path, tree in TREES.items()
        if path.parts[0] == "tests"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and dotted(node) in skips
    ]
    assert not wrong, "\n".join(wrong)


def is_check(name: str, checking: set[str]) -> bool:
    last = name.rpartition(".")[2]
    return last in checking or last.startswith("assert_")


@pytest.mark.parametrize("folders", [("vit",), ("figures",), ("vit", "figures", "ui", "pages")])
def test_importing_stays_light(folders: tuple[str, ...]) -> None:
    """No page loads torchvision or timm, vit loads no part of the app, figures no torch."""
    modules = set()
    for path, tree in TREES.items():
        if path.parts[0] not in folders and not (path.parts[0] == "app.py" and "pages" in folders):
            continue
        if path in PAGES:
            modules |= {name.rpartition(".")[0] or name for name in imports(path, tree)}
        else:
            parts = path.with_suffix("").parts
            modules.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    barred = {"torchvision", "timm"}
    if "ui" not in folders:
        barred |= {"streamlit"}
        barred |= {"plotly"} if folders == ("vit",) else {"torch"}
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import importlib, sys\n"
            f"for name in {sorted(modules)}: importlib.import_module(name)\n"
            f"print(*sorted({barred} & sys.modules.keys()))",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (loaded.returncode, loaded.stdout.strip()) == (0, ""), loaded.stderr[-2000:]
