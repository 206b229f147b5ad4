"""Checkpoints that are symbolic links: shown, read, never moved, and never left without target."""

from __future__ import annotations

import itertools
import os
import random
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from checkpoint_directory import LONG_AGO, NOW, CheckpointDirectory, contents

from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.stored_results import store_result
from tfckpt_trainer.catalog.retention.plan import plan, plan_of_names
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.foreign_writers import foreign_writers
from tfckpt_trainer.catalog.scan.protection import protections
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_checkpoint
from tfckpt_trainer.errors import RefusedError

INDEX, DATA = ".index", ".data-00000-of-00001"
REASON = "best is a symbolic link to it"


def link(made: CheckpointDirectory, name: str, target: str | Path) -> Path:
    path = made.root / name
    path.symlink_to(target)
    return path


def alias(made: CheckpointDirectory, name: str, target: str, *suffixes: str) -> None:
    for suffix in suffixes or (INDEX, DATA):
        link(made, f"{name}{suffix}", f"{target}{suffix}")


def prune(made: CheckpointDirectory, *names: str) -> None:
    move_to_trash(made.run, names, by="me", now=NOW, update_state_file=True)


@pytest.fixture
def history(made):
    """Five checkpoints, of which `best` is the second."""
    for step in (100, 200, 300, 400, 500):
        made.ours(step, age=LONG_AGO + 500 - step)
    alias(made, "best", "ckpt-200")
    return made


class TestShown:
    def test_with_the_state_of_its_target(self, history):
        best = history.scan()["best"]
        assert best.state is CheckpointState.VERIFIED
        assert (best.size, best.shards) == (0, 1)
        assert "It is a symbolic link to ckpt-200. Name ckpt-200 instead." in best.problem

    def test_with_the_damage_of_its_target(self, made):
        made.tensorflow("ckpt-1")
        alias(made, "best", "ckpt-1")
        index = made.root / "ckpt-1.index"
        index.write_bytes(b"x" + index.read_bytes()[1:])
        best = made.scan()["best"]
        assert best.state is CheckpointState.CORRUPT
        assert best.problem.startswith("It is a symbolic link to ckpt-1. ckpt-1.index")

    def test_with_what_verifying_it_found(self, made):
        made.tensorflow("ckpt-1")
        alias(made, "best", "ckpt-1")
        found = verify_checkpoint(made.run, "best")
        assert found is not None
        assert found.ok
        store_result(made.run, found.record)
        assert made.scan()["best"].state is CheckpointState.VERIFIED
        data = made.root / f"ckpt-1{DATA}"
        data.write_bytes(data.read_bytes())
        assert made.scan()["best"].state is CheckpointState.COMPLETE

    @pytest.mark.parametrize("linked", [INDEX, DATA])
    def test_where_only_a_part_is_linked(self, made, linked):
        made.tensorflow("ckpt-1")
        made.tensorflow("best", listed=False)
        (made.root / f"best{linked}").unlink()
        alias(made, "best", "ckpt-1", linked)
        best = made.scan()["best"]
        assert best.state is CheckpointState.COMPLETE
        assert f"best{linked} is a symbolic link to ckpt-1{linked}" in best.problem
        assert best.size == sum(
            path.lstat().st_size for path in made.root.glob("best.*") if not path.is_symlink()
        )

    @pytest.mark.parametrize(
        ("target", "state", "said"),
        [
            ("/elsewhere/file", CheckpointState.UNREADABLE, "outside this directory"),
            ("../run-2/file", CheckpointState.UNREADABLE, "it is not followed"),
            ("gone", CheckpointState.INCOMPLETE, "which does not exist"),
            ("{self}", CheckpointState.INCOMPLETE, "which leads back to itself"),
            ("sub", CheckpointState.INCOMPLETE, "which is not a regular file"),
        ],
    )
    @pytest.mark.parametrize("suffix", [INDEX, DATA])
    def test_where_it_leads_to_no_file(self, made, suffix, target, state, said):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2", age=LONG_AGO - 1)
        (made.root / "sub").mkdir()
        file = made.root / f"ckpt-1{suffix}"
        file.unlink()
        target = target.format(self=file.name)
        file.symlink_to(target)
        found = made.scan()["ckpt-1"]
        assert found.state is state
        assert f"{file.name} is a symbolic link to {target}" in found.problem
        assert said in found.problem
        assert not found.restorable

    def test_a_dead_link_is_as_old_as_itself(self, made):
        path = link(made, "best.index", "gone")
        os.utime(path, (NOW - 50, NOW - 50), follow_symlinks=False)
        assert made.scan()["best"].saved_at == NOW - 50

    def test_a_target_of_thousands_of_characters_is_shortened(self, made):
        made.tensorflow("ckpt-1")
        link(made, "best.index", "x/" * 2000 + "y")
        assert len(made.scan()["best"].problem) < 400

    def test_a_start_goes_on_from_the_checkpoint_and_not_from_the_link(self, made):
        made.tensorflow("ckpt-300")
        alias(made, "best", "ckpt-300")
        made.run.state_file.write_text('model_checkpoint_path: "best"\n')
        assert [c.name for c in made.scan().values() if c.is_head] == ["ckpt-300"]

    def test_what_is_newest_by_name_is_still_no_link(self, made):
        made.tensorflow("ckpt-300", listed=False)
        alias(made, "zbest", "ckpt-300")
        assert [c.name for c in made.scan().values() if c.is_head] == ["ckpt-300"]

    def test_an_incremental_look_follows_every_change_behind_a_link(self, made):
        for name in ("ckpt-1", "ckpt-2"):
            made.tensorflow(name, age=LONG_AGO)
        alias(made, "best", "ckpt-1")
        catalog = Catalog(made.run)
        index, data = made.root / f"best{INDEX}", made.root / f"best{DATA}"
        changes = [
            lambda: None,
            lambda: (made.root / f"ckpt-1{DATA}").unlink(),
            lambda: (index.unlink(), index.symlink_to("ckpt-2.index")),
            lambda: (data.unlink(), data.symlink_to(f"ckpt-2{DATA}")),
            lambda: (index.unlink(), index.write_bytes((made.root / "ckpt-2.index").read_bytes())),
            lambda: (data.unlink(), data.symlink_to("/elsewhere")),
            lambda: (data.unlink(), index.unlink()),
        ]
        for change in changes:
            change()
            assert catalog.scan(NOW) == Catalog(made.run).scan(NOW)


class TestProtected:
    def test_its_target_by_rules_and_by_name(self, history):
        checkpoints = Catalog(history.run).scan(NOW)
        by_rules = plan(checkpoints, Policy(keep_last=1))
        reasons = {d.checkpoint.name: d.reason for d in by_rules.decisions if d.keep}
        assert reasons["ckpt-200"] == REASON
        assert [c.name for c in by_rules.deleted] == ["ckpt-400", "ckpt-300", "ckpt-100"]
        assert plan_of_names(checkpoints, ["ckpt-200"]).deleted == ()
        before = contents(history.root)
        with pytest.raises(RefusedError, match=f"ckpt-200 cannot be pruned: {REASON}"):
            prune(history, "ckpt-200")
        assert contents(history.root) == before
        prune(history, *(c.name for c in by_rules.deleted))
        assert verify_checkpoint(history.run, "best").ok

    def test_a_link_takes_no_place_of_the_last(self, made):
        for step in (1, 2, 3):
            made.tensorflow(f"ckpt-{step}", age=LONG_AGO - step)
        alias(made, "zbest", "ckpt-3")
        decisions = plan(Catalog(made.run).scan(NOW), Policy(keep_last=2)).decisions
        kept = {d.checkpoint.name for d in decisions if d.keep}
        assert kept == {"zbest", "ckpt-3", "ckpt-2"}

    def test_the_link_itself_with_what_to_do(self, history):
        (reason,) = [
            d.reason
            for d in plan(Catalog(history.run).scan(NOW), Policy(keep_last=1)).decisions
            if d.checkpoint.name == "best"
        ]
        assert reason == (
            f"symbolic links are not moved; if you do not need it, run `rm best{DATA} best{INDEX}`"
        )
        with pytest.raises(
            RefusedError, match=r"best cannot be pruned: symbolic links are not moved"
        ):
            prune(history, "best")
        subprocess.run(reason.split("`")[1], shell=True, check=True, cwd=history.root)
        assert "best" not in history.scan()
        prune(history, "ckpt-200")
        assert "ckpt-200" not in history.scan()

    @pytest.mark.parametrize("name", ["be st", "a[b]*", "a\\b"])
    def test_a_link_of_many_parts_names_a_command_that_removes_links_alone(self, made, name):
        made.tensorflow("ckpt-1", shards=5)
        alias(made, name, "ckpt-1", INDEX)
        for part in range(5):
            alias(made, name, "ckpt-1", f".data-{part:05d}-of-00005")
        plain = made.root / f"{name}.data-00000-of-00001"
        plain.write_bytes(b"plain")
        reason = protections(Catalog(made.run).scan(NOW))[name]
        subprocess.run(reason.split("`")[1], shell=True, check=True, cwd=made.root)
        left = {path.name for path in made.root.iterdir() if path.name.startswith(name)}
        assert left == {plain.name}

    @pytest.mark.parametrize("suffix", [INDEX, DATA])
    def test_a_target_of_one_link_among_plain_files(self, made, suffix):
        for name in ("ckpt-1", "best", "ckpt-2"):
            made.tensorflow(name, age=LONG_AGO - int(name[-1]) if name != "best" else LONG_AGO)
        (made.root / f"best{suffix}").unlink()
        alias(made, "best", "ckpt-1", suffix)
        assert protections(Catalog(made.run).scan(NOW))["ckpt-1"] == REASON

    def test_the_target_of_a_chain(self, history):
        alias(history, "second", "best")
        reasons = protections(Catalog(history.run).scan(NOW))
        assert reasons["ckpt-200"] == REASON
        assert reasons["best"].startswith("symbolic links are not moved")
        assert reasons["second"].startswith("symbolic links are not moved")
        assert "It is a symbolic link to ckpt-200." in history.scan()["second"].problem

    def test_a_target_that_has_lost_its_index(self, history):
        (history.root / "ckpt-200.index").unlink()
        (history.root / f"best{DATA}").unlink()
        assert protections(Catalog(history.run).scan(NOW))["ckpt-200"] == REASON

    def test_an_absolute_link_under_another_path_of_the_directory(self, made, tmp_path):
        """`/home` is a link on many clusters, and people link what they see there."""
        made.tensorflow("ckpt-1", age=LONG_AGO)
        made.tensorflow("ckpt-2", age=LONG_AGO - 1)
        (tmp_path / "home").symlink_to(made.root)
        for suffix in (INDEX, DATA):
            link(made, f"best{suffix}", tmp_path / "home" / f"ckpt-1{suffix}")
        assert protections(Catalog(made.run).scan(NOW))["ckpt-1"] == REASON

    def test_data_on_another_disk_is_never_moved_by_a_rule(self, made, tmp_path):
        for step in (1, 2, 3):
            made.tensorflow(f"ckpt-{step}", age=LONG_AGO - step)
        data, disk = made.root / f"ckpt-1{DATA}", tmp_path / "disk"
        disk.mkdir()
        os.rename(data, disk / data.name)
        data.symlink_to(disk / data.name)
        found = plan(Catalog(made.run).scan(NOW), Policy(keep_last=1))
        assert [c.name for c in found.deleted] == ["ckpt-2"]
        with pytest.raises(RefusedError, match="symbolic links are not moved"):
            prune(made, "ckpt-1")
        assert (disk / data.name).exists()

    def test_a_link_that_comes_after_a_prune_was_planned(self, made):
        for step in (1, 2, 3):
            made.tensorflow(f"ckpt-{step}", age=LONG_AGO - step)
        going = [c.name for c in plan(Catalog(made.run).scan(NOW), Policy(keep_last=1)).deleted]
        assert "ckpt-1" in going
        alias(made, "best", "ckpt-1")
        before = contents(made.root)
        with pytest.raises(RefusedError, match=REASON):
            prune(made, *going)
        assert contents(made.root) == before

    def test_a_link_in_our_own_directory_moves_nothing_else(self, history):
        """What a hostile `saving/` has is passed over."""
        history.run.saving_directory.mkdir(parents=True, exist_ok=True)
        (history.run.saving_directory / "ckpt-100.index").symlink_to(
            history.root / "ckpt-300.index"
        )
        prune(history, "ckpt-100")
        assert (history.run.saving_directory / "ckpt-100.index").is_symlink()
        assert history.scan()["ckpt-300"].restorable

    def test_a_process_that_reads_through_a_link_uses_the_target(self, history):
        command = f"exec 3< {shlex.quote(str(history.root / 'best.index'))}; echo; read line"
        reader = subprocess.Popen(
            ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert reader.stdout is not None
            reader.stdout.readline()
            assert foreign_writers(history.run, time.time()).open_checkpoints == {"ckpt-200"}
        finally:
            reader.communicate(b"\n")


@pytest.mark.parametrize("seed", range(10))
def test_no_prune_takes_a_file_that_a_link_leads_to(made, seed):
    """Whatever links to whatever: what the system finds behind each link is the same after it."""
    chance = random.Random(seed)
    names = [f"ckpt-{step}" for step in range(1, 6)]
    for step, name in enumerate(names):
        made.tensorflow(name, age=LONG_AGO - step)
    linked = [f"link-{letter}" for letter in "abcde"]
    targets = [*names, *linked, "gone", "/elsewhere/ckpt-1", "../run/ckpt-2", "./ckpt-3"]
    for name, suffix in itertools.product(linked, (INDEX, DATA)):
        if chance.random() < 0.8:
            link(made, f"{name}{suffix}", f"{chance.choice(targets)}{suffix}")
    paths = [path for path in made.root.iterdir() if path.is_symlink()]
    before = {path: path.read_bytes() for path in paths if path.is_file()}
    for policy in (Policy(keep_last=1), Policy(keep_every_steps=4)):
        going = [c.name for c in plan(Catalog(made.run).scan(NOW), policy).deleted]
        if going:
            prune(made, *going)
    for name in [*names, *linked]:
        try:
            prune(made, name)
        except Exception:
            continue
    assert {path: path.read_bytes() for path in paths if path.is_file()} == before
    assert all(path.is_symlink() for path in paths)


def test_a_look_costs_no_open_file_and_no_write(history):
    before = len(os.listdir("/proc/self/fd")), contents(history.root)
    look = FileScanner(history.root)
    for _ in range(3):
        look.refresh()
    assert (len(os.listdir("/proc/self/fd")), contents(history.root)) == before


def test_a_checkpoint_is_current_until_a_link_leads_elsewhere(tmp_path):
    made = CheckpointDirectory(tmp_path / "run")
    alias(made, "best", made.ours(5))
    files = FileScanner(made.root)
    files.refresh()
    assert files.is_current("best")
    (made.root / f"best{DATA}").unlink()
    assert not files.is_current("best")
    link(made, f"best{DATA}", "missing")
    files.refresh(["best"])
    assert files.is_current("best"), "the link to no file is known"
    (made.root / "missing").write_bytes(b"found")
    assert not files.is_current("best")
    assert not files.is_current("other")
