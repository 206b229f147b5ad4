"""The package is installed whole, beside the releases of TensorFlow that the README names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from documentation import ROOT, load_tool
from requirements import needs
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.machine import user_directories

IMPORT_ALL = """
import importlib, pkgutil, tfckpt_trainer, tfckpt_tui

for package in (tfckpt_trainer, tfckpt_tui):
    within = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    names = [found.name for found in within]
    for name in names:
        # Some examples train when they are imported.
        if not name.startswith("tfckpt_trainer.examples.") and not name.endswith(".__main__"):
            importlib.import_module(name)
    print(package.__name__, len(names))
"""


@pytest.mark.matrix
@pytest.mark.tensorflow
def test_every_module_can_be_imported(tmp_path):
    script = tmp_path / "import_all.py"
    script.write_text(IMPORT_ALL)
    done = run_with_tensorflow(script)
    assert done.returncode == 0, done.stderr
    packages = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, _ in packages] == ["tfckpt_trainer", "tfckpt_tui"]
    assert all(int(count) > 50 for _, count in packages)


def packaging():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def jobs_of(workflow):
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text())["jobs"]


def rows_of_readme():
    """The cells of the table of releases, by the first word of their row."""
    text = (ROOT / "README.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    start = next(n for n, row in enumerate(rows) if row[0] == "TensorFlow")
    return {row[0]: row[1:] for row in rows[start : start + 3]}


def between(low, high):
    """Every release `2.N` from `low` to `high`, which is left out."""
    (first,), (end,) = (re.findall(r"^2\.(\d+)$", one) for one in (low, high))
    return [f"2.{minor}" for minor in range(int(first), int(end))]


def test_the_readme_the_pins_and_the_matrix_name_the_same_releases():
    rows = rows_of_readme()
    for wanted in (packaging()["dependencies"], *packaging()["optional-dependencies"].values()):
        for need in wanted:
            if found := re.match(r"tensor(?:board|flow)[^>]*>=([\d.]+),<([\d.]+)(;|$)", need):
                assert between(*found.groups()[:2]) == rows["TensorFlow"], need
    cells = re.search(r"^all=\((.*)\)$", (ROOT / ".ci" / "matrix").read_text(), re.MULTILINE)
    tested = [cell.split("-") for cell in cells[1].split() if cell[0] == "2"]
    assert tested == [
        list(pair) for pair in zip(rows["TensorFlow"], rows["tested with"], strict=True)
    ]
    assert jobs_of("weekly")["matrix"]["strategy"]["matrix"]["cell"] == cells[1].split()


def test_the_readme_names_the_releases_of_python_that_the_package_allows():
    classifiers = [one.rpartition(" ")[2] for one in packaging()["classifiers"] if " 3." in one]
    low, high = re.match(r">=3\.(\d+),<3\.(\d+)$", packaging()["requires-python"]).groups()
    assert classifiers == [f"3.{minor}" for minor in range(int(low), int(high))]
    rows = rows_of_readme()
    # TensorFlow has no wheels for the newest: there, the app runs without it.
    page = (ROOT / "docs" / "get-started" / "install.md").read_text()
    assert f"| {classifiers[-1]} | nothing: TensorFlow has no wheels |" in page
    for allowed, tested in zip(rows["Python"], rows["tested with"], strict=True):
        names = re.split(r", | to ", allowed)
        assert {names[0], names[-1], tested} <= set(classifiers[:-1])
        assert names[0] <= tested <= names[-1]


@pytest.mark.parametrize(
    ("system", "processor", "wanted"),
    [
        ("linux", "x86_64", "tensorflow-cpu"),
        ("linux", "aarch64", "tensorflow"),
        ("darwin", "arm64", "tensorflow"),
        ("darwin", "x86_64", "tensorflow"),
    ],
)
def test_the_extra_for_processors_names_a_package_that_has_wheels_there(system, processor, wanted):
    needs = map(Requirement, packaging()["optional-dependencies"]["cpu"])
    place = {"sys_platform": system, "platform_machine": processor}
    assert [need.name for need in needs if need.marker.evaluate(place)] == [wanted]


@pytest.mark.e2e
@needs("bash")
def test_a_release_is_published_after_the_tests_and_with_the_tag_of_its_version():
    jobs = jobs_of("publish")
    assert (jobs["publish"]["needs"], jobs["build"]["needs"]) == ("build", "test")
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    (compare,) = [step["run"] for step in jobs["build"]["steps"] if "tag" in step.get("name", "")]

    def ends(tag):
        command = ["bash", "-e", "-c", compare]
        environment = {**os.environ, "GITHUB_REF_NAME": tag}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    version = packaging()["version"]
    assert ends(f"v{version}").returncode == 0
    for wrong in (version, f"v{version}.1", "main"):
        ended = ends(wrong)
        assert ended.returncode == 1
        assert f"expected v{version}" in ended.stdout


def test_the_page_on_installing_lists_all_that_an_uninstall_leaves(monkeypatch):
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    left = (ROOT / "docs" / "get-started" / "install.md").read_text().partition("leaves behind")[2]
    ours = {name: make for name, make in vars(user_directories).items() if "_directory" in name[1:]}
    directories = [make() for name, make in ours.items() if not name.startswith("_")]
    assert len(directories) == 3
    for directory in directories:
        assert f"| `~/{directory.relative_to(Path.home())}` |" in left


def test_the_links_of_the_package_page_lead_to_files_of_the_commit_that_is_built():
    describe = load_tool("hatch_build", ROOT).describe
    readme = (ROOT / "README.md").read_text()
    relative = re.compile(r"\]\((?!https?:)")
    assert len(relative.findall(readme)) > 40

    page = describe(readme, "https://github.com", "owner/name", "c0ffee")
    assert not relative.search(page)
    base = r"https://github.com/owner/name/(blob|raw)/c0ffee/([^)#]+)"
    links = re.findall(rf"(!?)\[[^\]]*\]\({base}(#[^)]+)?\)", page)
    assert len(links) == len(relative.findall(readme))
    for image, kind, path, _ in links:
        assert (ROOT / path).exists()
        assert kind == ("raw" if image else "blob")

    assert not relative.search(describe(readme))


@pytest.mark.parametrize("name", ["TrainingRun", "fit", "SaveOptions"])
def test_without_tensorflow_an_import_says_what_to_install(name):
    program = f"import sys; sys.modules['tensorflow'] = None; from tfckpt_trainer import {name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ModuleNotFoundError: tfckpt_trainer.training needs TensorFlow")
    assert "`pip install tensorflow`" in last
