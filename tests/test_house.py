"""Enforces layers, import rules, sizes and places of tests. Reads the sources as text and runs none of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = {
    "bkctl": ROOT / "bkctl",
    "bkdaemon": ROOT / "daemon/bkdaemon",
    "bkinspect": ROOT / "inspect/bkinspect",
    "bkrecovery": ROOT / "recovery/bkrecovery",
}
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 800

LAYERS = [  # from the bottom; a module imports from its own layer or a lower one
    ["bkctl.errors", "bkctl.__init__"],
    ["bkctl.model", "bkctl.world"],
    ["bkctl.codec"],
    ["bkctl.protocol"],
    ["bkctl.meta"],
    ["bkctl.client"],
    ["bkctl.log"],
    ["bkinspect"],
    ["bkrecovery"],
    ["bkdaemon"],
    ["bkctl.cli", "bkctl.__main__"],
]
BROKER_LAYERS = [  # inside bkdaemon.broker, from the bottom; a module imports from its own layer or a lower one
    ["config", "config_keys", "metadata_place", "patterns", "refusal", "rules"],
    ["compaction"],
    ["dispatch"],
    ["topic"],
    ["protocol"],
    ["cluster"],
    ["upkeep", "watch", "maintained", "stats"],
    ["rest", "metrics", "web"],
    ["service"],
]
ONLY_IN = {
    "typer": "bkctl.cli",
    "rich": "bkctl.cli",
    "kazoo": "bkctl.meta",
    "pyspark": ("bkinspect.audit", "bkdaemon.local"),
}
BOOKIE_EXCEPT = ("bkdaemon.bookie.service", "bkdaemon.bookie.http")
"""Modules around the storage: the process, with the keys of auto recovery, and routes that read from the cluster."""
PURE = ("bkctl.codec", "bkctl.protocol")
IMPURE_MODULES = {"os", "io", "socket", "asyncio", "time", "random", "logging", "pathlib", "threading", "subprocess"}
ASYNCIO_PACKAGES = (
    "bkctl.world",
    "bkctl.client",
    "bkctl.meta",
    "bkctl.log",
    "bkctl.cli",
    "bkrecovery",
    "bkdaemon",
    "bkinspect.audit",
    "bkinspect.topic",
)


def modules() -> Iterator[tuple[str, Path, ast.Module]]:
    for package, folder in SOURCE_ROOTS.items():
        for path in sorted(folder.rglob("*.py")):
            if path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
                continue
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(p for p in parts if p != "__init__") if len(parts) > 2 else ".".join(parts)
            yield name, path, ast.parse(path.read_text(), str(path))


ALL = list(modules())


def imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yields name and line of every import, also of those in functions and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def inside(module: str, packages: str | tuple[str, ...]) -> bool:
    """Returns whether a module is one of some packages or in one of them."""
    names = (packages,) if isinstance(packages, str) else packages
    return any(module == name or module.startswith(name + ".") for name in names)


def layer_of(module: str) -> int | None:
    return next((i for i, packages in enumerate(LAYERS) if inside(module, tuple(packages))), None)


def test_modules_import_from_their_own_layer_or_a_lower_one() -> None:
    wrong = []
    for name, path, tree in ALL:
        own = layer_of(name)
        if own is None:
            assert name in ("bkctl.__init__",), f"{name} is in no layer"
            continue
        for target, line in imports(tree):
            other = layer_of(target)
            if other is not None and other > own:
                wrong.append(f"{path.relative_to(ROOT)}:{line} {name} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_modules_of_the_broker_import_from_their_own_layer_or_a_lower_one() -> None:
    layers = {f"bkdaemon.broker.{name}": i for i, names in enumerate(BROKER_LAYERS) for name in names}

    def layer(module: str) -> int | None:
        return layers.get(".".join(module.split(".")[:3]))

    wrong = []
    for name, path, tree in ALL:
        own = layer(name)
        if own is None:
            assert not name.startswith("bkdaemon.broker.") or name == "bkdaemon.broker.__init__", f"{name} has no layer"
            continue
        for target, line in imports(tree):
            other = layer(target)
            if other is not None and other > own:
                wrong.append(f"{path.relative_to(ROOT)}:{line} {name} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_only_broker_start_imports_the_broker_in_the_command_line() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for name, path, tree in ALL
        if inside(name, "bkctl.cli") and name != "bkctl.cli.broker.start"
        for target, line in imports(tree)
        if inside(target, "bkdaemon.broker")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_import_cycle_exists() -> None:
    assert not list(cycles(import_graph()))


def import_graph() -> dict[str, set[str]]:
    """Returns which modules each module imports; `from package import module` is an import of the module."""
    trees = {name.removesuffix(".__init__"): tree for name, _, tree in ALL}
    graph: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                graph[name].update(alias.name for alias in node.names if alias.name in trees)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    graph[name].add(whole if whole in trees else node.module)
        graph[name] &= trees.keys() - {name}
    return graph


def cycles(graph: dict[str, set[str]]) -> Iterator[tuple[str, ...]]:
    """Yields modules that import each other, directly or not: the strongly connected components, each sorted."""
    reached = {name: closure(graph, name) for name in graph}
    seen: set[str] = set()
    for name in graph:
        if name not in seen and name in reached[name]:
            members = {other for other in reached[name] if name in reached[other]}
            seen |= members
            yield tuple(sorted(members))


def closure(graph: dict[str, set[str]], start: str) -> set[str]:
    """Returns every module that one imports, directly or not."""
    found: set[str] = set()
    pending = [start]
    while pending:
        for target in graph[pending.pop()] - found:
            found.add(target)
            pending.append(target)
    return found


def test_libraries_are_imported_only_in_their_packages() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for name, path, tree in ALL
        for target, line in imports(tree)
        for library, packages in ONLY_IN.items()
        if inside(target, library) and not inside(name, packages)
    ]
    assert not wrong, "\n".join(wrong)


def test_codec_and_protocol_import_no_sockets_files_or_clocks() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for name, path, tree in ALL
        if inside(name, PURE)
        for target, line in imports(tree)
        if target.split(".")[0] in IMPURE_MODULES
    ]
    assert not wrong, "\n".join(wrong)


def test_asyncio_is_imported_only_in_its_packages() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for name, path, tree in ALL
        if not inside(name, ASYNCIO_PACKAGES)
        for target, line in imports(tree)
        if inside(target, "asyncio")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_bookie_imports_no_client_and_no_recovery() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for name, path, tree in ALL
        if inside(name, "bkdaemon.bookie") and not inside(name, BOOKIE_EXCEPT)
        for target, line in imports(tree)
        if inside(target, ("bkctl.client", "bkrecovery", "bkinspect"))
    ]
    assert not wrong, "\n".join(wrong)


def test_source_roots_are_not_packages() -> None:
    assert [d for d in ("daemon", "inspect", "recovery") if (ROOT / d / "__init__.py").exists()] == []


@pytest.mark.parametrize(("name", "path", "tree"), ALL, ids=[m[0] for m in ALL])
def test_sizes_and_first_lines(name: str, path: Path, tree: ast.Module) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MODULE_LINES_MAX, f"{path} has {len(source.splitlines())} lines"
    assert ast.get_docstring(tree), f"{path} has no docstring"
    long = [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long, f"{path}: {', '.join(long)}"


def test_the_files_that_run_first_exist() -> None:
    tests = ROOT / "tests"
    names = (tests / "longest.txt").read_text().split()
    assert len(names) == len(set(names))
    assert [name for name in names if not (tests / name).is_file()] == []


MIRRORED_LINES_MIN = 41
"""A module of fewer lines may be tested through the modules that use it."""


def mirrored_test(path: Path) -> Path:
    """Returns where the tests of a module belong: its path below `tests/unit`, without leading underscores."""
    package, folder = next((p, f) for p, f in SOURCE_ROOTS.items() if path.is_relative_to(f))
    root = ROOT / "tests/unit" / ("" if package == "bkctl" else package.removeprefix("bk"))
    return root / path.relative_to(folder).parent / f"test_{path.stem.lstrip('_')}.py"


def test_each_module_has_its_tests_at_the_mirrored_path() -> None:
    """`tests/unmirrored.txt` lists the exceptions; a module that has its tests must leave the list."""
    missing = {
        path.relative_to(ROOT).as_posix()
        for _, path, _ in ALL
        if path.name != "__init__.py"
        and len(path.read_text().splitlines()) >= MIRRORED_LINES_MIN
        and not mirrored_test(path).is_file()
    }
    allowed = set((ROOT / "tests/unmirrored.txt").read_text().split())
    assert sorted(missing - allowed) == [], "modules without tests at the mirrored path"
    assert sorted(allowed - missing) == [], "modules to remove from tests/unmirrored.txt"
