"""The wheel as a user installs it: in an environment of its own, without the source, run by spark-submit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bkinspect.java import find_java

from tests.golden import FOLDER, Golden
from tests.unit.inspect.audit.test_job import change_a_byte
from tests.unit.inspect.audit.test_two_workers import SETTINGS

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = ROOT / "inspect/bkinspect/audit/kubernetes/Dockerfile"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "bkctl", "daemon", "inspect", "recovery")
ENTRY = "bkinspect/audit/__main__.py"
LIMIT_S = 900
pytestmark = pytest.mark.slow


class Wheel(NamedTuple):
    """A wheel of the sources, a source distribution, the wheel of that, and the Python of an environment to build."""

    path: Path
    sdist: Path
    of_sdist: Path
    python: Path


def run(*words: object, **more: Any) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=LIMIT_S, check=False, **more)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def environment(folder: Path) -> Path:
    """The Python of a new virtual environment."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    base = tmp_path_factory.mktemp("wheel")
    sources = base / "sources"
    sources.mkdir()
    for name in SOURCES:  # a build writes into the folder of its sources
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, sources)
    python = environment(base / "build")
    run(python, "-m", "pip", "install", "-q", "setuptools>=77", "wheel")
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run(python, "-c", build, base / "sdist", cwd=sources)
    (sdist,) = (base / "sdist").glob("bkctl-*.tar.gz")
    wheels = []
    for name, source in (("wheel", sources), ("of_sdist", sdist)):
        run(python, "-m", "pip", "wheel", "-q", source, "--no-deps", "--no-build-isolation", "-w", base / name)
        (path,) = (base / name).glob("bkctl-*.whl")
        wheels.append(path)
    return Wheel(wheels[0], sdist, wheels[1], python)


def contents(path: Path) -> dict[str, int]:
    """The files of a wheel with their checksums."""
    with zipfile.ZipFile(path) as archive:
        return {one.filename: one.CRC for one in archive.infolist() if not one.filename.endswith("/RECORD")}


def test_the_wheel_of_the_source_distribution_is_the_same(wheel: Wheel) -> None:
    assert contents(wheel.of_sdist) == contents(wheel.path)


def test_the_wheel_has_every_module_of_the_sources(wheel: Wheel) -> None:
    packages = {"bkctl": "bkctl", "daemon/bkdaemon": "bkdaemon", "inspect/bkinspect": "bkinspect"}
    packages |= {"recovery/bkrecovery": "bkrecovery"}
    expected = {
        f"{package}/{path.relative_to(ROOT / folder)}"
        for folder, package in packages.items()
        for pattern in ("*.py", "py.typed", "*.proto", "*.avsc", "*.ipynb")
        for path in (ROOT / folder).rglob(pattern)
    }
    assert ENTRY in expected
    assert expected - contents(wheel.path).keys() == set()


def test_the_paths_of_the_dockerfile_are_in_the_wheel(wheel: Wheel) -> None:
    text = DOCKERFILE.read_text()
    (copied,) = re.findall(r"^COPY (\S+) \S+$", text, re.M)
    assert Path("dist", wheel.path.name).match(copied)
    linked = re.findall(r"site-packages/(\S+\.py)", text)
    assert linked == [ENTRY]
    assert linked[0] in contents(wheel.path)
    with zipfile.ZipFile(wheel.path) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        requirements = archive.read(name).decode()
    extras = {f'Requires-Dist: {name}; extra == "spark"' for name in re.findall(r"'(\w+>=[\d.]+)'", text)}
    assert len(extras) == 3
    assert extras <= set(requirements.splitlines())
    assert "Provides-Extra: collect" in requirements


def test_spark_submit_of_the_installed_wheel_finds_what_the_sources_find(
    wheel: Wheel, golden: Golden, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    python = environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", "-q", f"{wheel.path}[spark]")
    places = run(python, "-c", "import bkctl, bkinspect.audit as a; print(bkctl.__file__, a.__file__)", cwd=tmp_path)
    assert all(place.startswith(str(tmp_path / "venv")) for place in places.split())
    script = Path(places.split()[1]).with_name("__main__.py")
    java = find_java(os.environ).resolve().parent.parent
    outside = ("PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    environ = {name: value for name, value in os.environ.items() if name not in outside}
    environ |= {"JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1", "BKCTL_STATE_DIR": str(tmp_path)}
    environ["PATH"] = f"{python.parent}:{os.environ['PATH']}"
    environ["PYSPARK_PYTHON"] = str(python)
    settings = {**SETTINGS, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    submit = [python.parent / "spark-submit", "--master", "local[2]"]
    submit += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    options = ["--offline", bookie, "--metadata", FOLDER / "zk_tree.json", "--check", "digests", "-o", "jsonl"]
    found = []
    for command in ([*submit, script], [sys.executable, "-m", "bkctl", "audit", "run", "--master", "local[2]"]):
        done = subprocess.run(
            [*map(str, [*command, *options, "--to", tmp_path / f"run{len(found)}"])],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=environ if command[-1] == script else {**os.environ, "BKCTL_STATE_DIR": str(tmp_path)},
            cwd=tmp_path,
        )
        assert done.returncode == 1, done.stderr[-3000:]
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        same = ("code", "severity", "subject", "message", "ledger_id", "entry_id", "bookie_id", "file", "offset")
        found.append([{name: row[name] for name in same} for row in rows])
    assert [row["code"] for row in found[0]] == ["BKC107"]
    assert found[0] == found[1]
