"""The examples for Kubernetes: valid YAML, and command lines that this version's programs take."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import bkinspect.audit
import pyspark
import pytest
import yaml
from bkinspect.java import find_java

from tests.command_line import bkctl

FOLDER = Path(bkinspect.audit.__file__).parent / "kubernetes"
SUBMIT = Path(pyspark.__file__).parent / "bin/spark-submit"
SCRIPT = "/opt/bkctl/audit.py"
PACKAGE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
LIMIT_S = 120


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def jobs() -> dict[str, Any]:
    """The pods of the cron jobs, by the job's name."""
    found = [one for one in documents("cronjob.yaml") if one["kind"] == "CronJob"]
    return {one["metadata"]["name"]: one["spec"]["jobTemplate"]["spec"]["template"]["spec"] for one in found}


def container(name: str) -> dict[str, Any]:
    (only,) = jobs()[name]["containers"]
    assert all(isinstance(word, str) for word in only["command"])
    return dict(only)


def application() -> dict[str, Any]:
    (only,) = documents("spark-application.yaml")
    assert (only["apiVersion"], only["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    return dict(only["spec"])


def readme_command() -> list[str]:
    text = re.sub(r" \\\n +", " ", (FOLDER / "README.md").read_text())
    (line,) = (line for line in text.splitlines() if line.startswith("    spark-submit"))
    return shlex.split(line)


def divided(command: list[str]) -> tuple[list[str], list[str]]:
    """The words of spark-submit, and those of the audit."""
    (at,) = (number for number, word in enumerate(command) if word.removeprefix("local://") == SCRIPT)
    return command[:at], command[at + 1 :]


def accepted(*words: str) -> bool:
    """True where bkctl can parse a command line; --help is printed instead of running it."""
    return bkctl(*words, "--help").code == 0


@pytest.fixture(scope="module")
def submit_options() -> set[str]:
    home = find_java(os.environ).resolve().parent.parent
    done = subprocess.run(
        [SUBMIT, "--help"], capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, "JAVA_HOME": str(home)}
    )
    return set(re.findall(r"--[a-z-]+", done.stdout + done.stderr))


def test_the_audits_of_all_examples_are_command_lines_of_this_version() -> None:
    commands = {
        "application": application()["arguments"],
        "job": divided(container("bkctl-audit")["command"])[1],
        "readme": divided(readme_command())[1],
    }
    assert {name: accepted("audit", "run", *words) for name, words in commands.items()} == dict.fromkeys(commands, True)
    assert commands["job"][:6] == commands["application"][:6]
    assert not accepted("audit", "run", "--no-such-option")


def test_the_collector_is_a_command_line_of_this_version() -> None:
    program, *words = container("bkctl-collect-bookie-0")["command"]
    assert program == "bkctl"
    assert accepted(*words)
    assert {"audit", "collect"} < set(words)


def test_options_and_settings_are_those_of_spark_submit(submit_options: set[str]) -> None:
    for command in (divided(container("bkctl-audit")["command"])[0], divided(readme_command())[0]):
        assert command[0] == "spark-submit"
        options = dict(zip(command[1::2], command[2::2], strict=True))
        assert options.keys() <= submit_options
        assert options["--master"].startswith("k8s://https://")
        settings = [word for option, word in zip(command[1::2], command[2::2], strict=True) if option == "--conf"]
        assert all(re.fullmatch(r"spark\.[\w.-]+=\S+", setting) for setting in settings)
        assert all(PACKAGE.fullmatch(package) for package in options["--packages"].split(","))
    assert all(PACKAGE.fullmatch(package) for package in application()["deps"]["packages"])


def test_the_examples_agree_with_the_dockerfile() -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text()
    (version,) = re.findall(r"^ARG SPARK=(\S+)$", dockerfile, re.M)
    (image,) = re.findall(r"-t (\S+)", dockerfile)
    assert f" {SCRIPT} " in dockerfile
    spec = application()
    assert (spec["sparkVersion"], spec["image"]) == (version, image)
    assert spec["mainApplicationFile"] == f"local://{SCRIPT}"
    assert {container(name)["image"] for name in jobs()} == {image}
    command = container("bkctl-audit")["command"]
    assert f"spark.kubernetes.container.image={image}" in command
    assert f"spark.kubernetes.container.image={image}" in readme_command()
    runtimes = re.findall(r"iceberg-spark-runtime-([\d.]+)_2\.13", " ".join([*command, *spec["deps"]["packages"]]))
    assert set(runtimes) == {version.rpartition(".")[0]}


def test_every_mount_account_and_volume_is_declared() -> None:
    for pod in jobs().values():
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        for one in pod["containers"]:
            mounts = one.get("volumeMounts", ())
            assert {mount["name"] for mount in mounts} == volumes
            assert all(mount["readOnly"] for mount in mounts)
    collector = container("bkctl-collect-bookie-0")
    words = collector["command"]
    given = {words[at + 1] for at, word in enumerate(words) if word == "--dirs"}
    assert given == {mount["mountPath"] for mount in collector["volumeMounts"]}
    accounts = {one["metadata"]["name"] for one in documents("cronjob.yaml") if one["kind"] == "ServiceAccount"}
    assert {jobs()["bkctl-audit"]["serviceAccountName"], application()["driver"]["serviceAccount"]} == accounts
