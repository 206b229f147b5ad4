"""The commands that free disk space and take it back: prune, undo, trash, pin, unpin."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from answering_trainer import AnsweringTrainer, moving_files
from cut_off import DONE, killed_at
from msgspec.structs import replace
from rundir_factory import RunFactory, two_branches, without_heartbeats

from beating import beating
from bundle_writing import array, write, write_floats
from command_running import BINARY, Tool, run_binary
from real_file_systems import make_read_only, small_tmpfs
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.cli.checkpoints.trash import parse_age
from tfckpt_tui.services.control import prune as service
from tfckpt_tui.services.control.prune import prune
from tfckpt_tui.services.control.request import FrontEnd
from waiting import MOST_SECONDS, attempts

OLD = ["ckpt-400", "ckpt-300", "ckpt-200", "ckpt-100"]
"""What keeping the last two, one of them with the best loss, gives up; newest first."""

RULES = ["--keep-last", "2", "--keep-best", "loss:min:1"]


@pytest.fixture
def ended(tmp_path: Path) -> RunFactory:
    """A run whose trainer is gone."""
    return without_heartbeats(two_branches(tmp_path / "run"))


def steps(run: RunDirectory) -> list[str]:
    return sorted(path.stem for path in run.root.glob("*.index"))


def test_a_dry_run_shows_the_plan_and_moves_nothing(tool: Tool, ended: RunFactory) -> None:
    before = steps(ended.run)
    said = tool("prune", ended.run.root, *RULES, "--dry-run", "--json")
    assert said.code == 0
    plan = said.json["plan"]
    deleted = [d for d in plan["decisions"] if not d["keep"]]
    assert [d["name"] for d in deleted] == OLD
    assert plan["freed_bytes"] == sum(d["bytes"] for d in deleted)
    assert all(d["reason"] for d in plan["decisions"])
    assert said.json["trash"] is None
    assert steps(ended.run) == before
    words = tool("prune", ended.run.root, *RULES, "--dry-run").data
    assert "4 checkpoints to delete" in words


@pytest.mark.parametrize(
    ("act", "words", "command"),
    [
        ("prune", ["prune", "ckpt-200", "--yes"], "trash"),
        ("delete", ["prune", "ckpt-200", "--delete", "--yes"], "ls"),
        ("undo", ["undo"], "trash"),
        ("empty", ["trash", "empty", "--yes"], "trash"),
    ],
)
def test_an_interrupt_says_where_to_see_what_is_left(
    tool: Tool,
    ended: RunFactory,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    words: list[str],
    command: str,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    root = ended.run.root
    assert tool("prune", root, "ckpt-100", "--yes").code == 0
    monkeypatch.setattr(service, act, interrupted)
    said = tool(words[0], root, *words[1:])
    assert said.code == 130
    last = said.words.strip().splitlines()[-1]
    assert last.startswith("Interrupted. ")
    assert last.endswith(f" with `tfckpt-tui {command} {root}`.")


def test_a_list_that_is_a_link_is_told_and_left_as_it_is(tool: Tool, ended: RunFactory) -> None:
    place = ended.run.state_file
    place.rename(ended.run.root / "list.txt")
    place.symlink_to("list.txt")
    before = place.read_text()
    said = tool("prune", ended.run.root, "ckpt-100", "--yes")
    assert said.code == 0
    assert f"Done, but: {place} cannot be read as TensorFlow's list" in said.words
    assert (place.is_symlink(), place.read_text()) == (True, before)


def test_the_variables_of_a_saved_model_stay(tool: Tool, tmp_path: Path) -> None:
    place = tmp_path / "model" / "variables"
    place.mkdir(parents=True)
    (place.parent / "saved_model.pb").write_bytes(b"x")
    write(place / "variables", {"w": array([1.0])})
    said = tool("prune", place, "variables", "--yes")
    assert said.code == 4
    assert "variables cannot be pruned: a SavedModel needs it" in said.words
    listed = tool("ls", place, "--json").json["checkpoints"]
    assert [one["current"] for one in listed] == [False]


def test_a_prune_by_rule_says_first_that_steps_and_times_disagree(
    tool: Tool, tmp_path: Path
) -> None:
    for step, age in ((75, 600), (100, 800), (500, 700)):
        for path in write(tmp_path / f"ckpt-{step}", {"w": array([1.0])}):
            os.utime(path, (time.time() - age,) * 2)
    said = tool("prune", tmp_path, "--keep-last", "1", "--dry-run")
    assert "ckpt-75 was written after ckpt-500 and has a smaller step" in said.words
    assert f"run `tfckpt-tui pin {tmp_path} ckpt-75` first" in said.words
    assert tool("prune", tmp_path, "--keep-last", "1", "--yes").code == 0
    assert steps(RunDirectory(tmp_path)) == ["ckpt-500"]
    assert "ckpt-75" not in tool("prune", tmp_path, "--keep-last", "1", "--dry-run").words


@pytest.mark.parametrize("form", ["cp-{}.ckpt", "epoch_{}", "weights.{}-0.51", "ckpt{}", "cp-{}"])
@pytest.mark.parametrize("times", [(0, 0, 0), (2, 1, 0)])
def test_the_last_epoch_of_a_callback_stays(
    tool: Tool, tmp_path: Path, form: str, times: tuple[int, ...]
) -> None:
    for epoch, later in zip((8, 9, 12), times, strict=True):
        for path in write(tmp_path / form.format(epoch), {"w": array([1.0])}):
            os.utime(path, (1_700_000_000 + later,) * 2)
    listed = tool("ls", tmp_path, "--json").json["checkpoints"]
    assert [one["step"] for one in listed] == [12, 9, 8]
    assert tool("inspect", tmp_path, "9", "--json").json["checkpoint"] == form.format(9)
    assert tool("prune", tmp_path, "--keep-last", "1", "--yes").code == 0
    assert [path.name for path in tmp_path.glob("*.index")] == [f"{form.format(12)}.index"]


def test_a_step_is_meant_before_an_epoch_of_the_same_number(tool: Tool, tmp_path: Path) -> None:
    for name in ("ckpt-7", "epoch_7", "epoch_8"):
        write(tmp_path / name, {"w": array([1.0])})
    for number, name in ((7, "ckpt-7"), (8, "epoch_8")):
        for command in ("inspect", "verify"):
            found = tool(command, tmp_path, number, "--json").json
            assert name in (found.get("checkpoint"), found.get("checkpoints", [{}])[0].get("name"))


def test_a_prune_by_rule_asks_where_the_order_is_a_guess(tool: Tool, tmp_path: Path) -> None:
    for name in ("better", "worse", "ckpt-1"):
        for path in write(tmp_path / name, {"w": array([1.0])}):
            os.utime(path, (1_700_000_000, 1_700_000_000))
    said = tool("prune", tmp_path, "--keep-last", "1", "--dry-run")
    assert said.code == 0
    assert "Nothing tells whether ckpt-1 or worse is newer" in said.words
    said = tool("prune", tmp_path, "--keep-last", "1", "--yes")
    assert said.code == 4
    assert "--yes does not answer which checkpoint is newer. Nothing was changed." in said.words
    assert steps(RunDirectory(tmp_path)) == ["better", "ckpt-1", "worse"]
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "worse"\nall_model_checkpoint_paths: "worse"\n'
    )
    assert tool("prune", tmp_path, "--keep-last", "1", "--yes").code == 0
    assert steps(RunDirectory(tmp_path)) == ["worse"]


def test_prune_and_undo(tool: Tool, ended: RunFactory) -> None:
    before = steps(ended.run)
    pruned = tool("prune", ended.run.root, *RULES, "--yes", "--json").json
    gone = set(OLD)
    assert set(steps(ended.run)) == set(before) - gone
    listed = tool("trash", ended.run.root, "--json").json["trash"]
    assert [(t["id"], set(t["names"])) for t in listed] == [(pruned["trash"], gone)]
    undone = tool("undo", ended.run.root, "--json").json
    assert (undone["trash"], set(undone["names"])) == (pruned["trash"], gone)
    assert steps(ended.run) == before
    assert tool("trash", ended.run.root, "--json").json["trash"] == []


def test_after_a_prune_was_killed_the_next_one_moves_what_its_plan_says(
    tool: Tool, tmp_path: Path
) -> None:
    """What had moved comes back first, so the same command does all of it."""
    tried = 0
    for call in attempts("a prune that is not killed"):
        run = without_heartbeats(two_branches(tmp_path / str(call))).run
        before = steps(run)
        code = killed_at(call, lambda: prune(run, OLD, through=FrontEnd.COMMAND_LINE))  # noqa: B023
        if code == DONE:
            break
        if steps(run) in (before, sorted({*before} - {*OLD})):
            continue
        tried += 1
        names = OLD if tried % 2 else ["ckpt-100"]
        planned = tool("prune", run.root, *names, "--dry-run")
        assert (planned.code, planned.data) == (4, "")
        assert f"had moved with `tfckpt-tui undo {run.root}`." in planned.words
        said = tool("prune", run.root, *names, "--yes", "--json")
        assert said.code == 0, said
        assert "Brought back: ckpt-" in said.words and "It had been interrupted." in said.words
        assert {d["name"] for d in said.json["plan"]["decisions"]} == {*names}
        assert {*before} - {*steps(run)} == {*names}
    assert tried > 2


def test_where_nothing_is_to_go_nothing_is_asked(tool: Tool, ended: RunFactory) -> None:
    said = tool("prune", ended.run.root, "--keep-last", "100")
    assert said.code == 0
    assert "0 checkpoints to delete" in said.data


def test_names_and_steps_go_and_nothing_else(tool: Tool, ended: RunFactory) -> None:
    before = steps(ended.run)
    plan = tool("prune", ended.run.root, "ckpt-100", "300", "--dry-run", "--json").json["plan"]
    assert [(d["name"], d["keep"]) for d in plan["decisions"]] == [
        ("ckpt-300", False),
        ("ckpt-100", False),
    ]
    said = tool("prune", ended.run.root, "ckpt-100", "300", "--yes")
    assert (said.code, "2 checkpoints to delete" in said.data) == (0, True)
    assert set(before) - set(steps(ended.run)) == {"ckpt-100", "ckpt-300"}


def test_a_protected_name_is_refused_and_with_it_all_others(tool: Tool, ended: RunFactory) -> None:
    before = steps(ended.run)
    tool("pin", ended.run.root, "ckpt-100")
    words = ("prune", ended.run.root, "ckpt-200", "ckpt-100")
    said = tool(*words, "--yes")
    assert (said.code, "ckpt-100 cannot be pruned: pinned. Nothing was changed" in said.words) == (
        4,
        True,
    )
    said = tool(*words, "--delete", "--yes")
    assert "ckpt-100 cannot be deleted: pinned. Nothing was changed." in said.words
    dry = tool(*words, "--dry-run")
    assert (dry.code, "to delete" in dry.data) == (4, False)
    assert "ckpt-100 cannot be pruned: pinned." in dry.words
    assert steps(ended.run) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ckpt-7"], "no checkpoint ckpt-7"),
        (["../ckpt-100"], "no checkpoint ../ckpt-100"),
        (["ckpt-100", "--keep-last", "1"], "one of the three"),
        (["ckpt-100", "--config", "x.toml"], "one of the three"),
    ],
)
def test_names_that_make_no_sense(
    tool: Tool, ended: RunFactory, words: list[str], message: str
) -> None:
    said = tool("prune", ended.run.root, *words, "--yes")
    assert said.code == 2
    assert message in said.words


@pytest.mark.e2e
def test_rules_of_a_file_may_delete_for_good_what_lay_long_in_the_trash(
    tool: Tool, ended: RunFactory, tmp_path: Path
) -> None:
    root = ended.run.root
    rules = tmp_path / "rules.toml"
    rules.write_text("[retention]\nkeep_last = 4\ntrash_hours = 24\n")
    words = ("prune", root, "--config", rules, "--yes", "--json")
    first = tool(*words).json
    assert first["trash"]
    assert first["emptied"] == {"freed_bytes": 0, "names": []}
    manifest = ended.run.trash / first["trash"] / "manifest.json"
    assert tool(*words).json["emptied"]["names"] == []
    store(manifest, replace(load(manifest, TrashManifest), at=time.time() - 25 * 3600))
    dry = tool("prune", root, "--config", rules, "--dry-run")
    assert "of the trash to delete for good" in dry.data
    assert run_binary("prune", root, "--config", rules).code == 4
    assert manifest.exists()
    second = tool(*words).json
    assert second["trash"] is None
    gone = [d["name"] for d in first["plan"]["decisions"] if not d["keep"]]
    assert sorted(second["emptied"]["names"]) == sorted(gone)
    assert not manifest.exists()


@pytest.mark.e2e
def test_without_a_terminal_nothing_is_done_unconfirmed(ended: RunFactory) -> None:
    before = steps(ended.run)
    said = run_binary("prune", ended.run.root, *RULES)
    assert said.code == 4
    assert "Give --yes" in said.words
    assert "delete  ckpt-100" in said.data
    assert steps(ended.run) == before


def answered(answers: str, *words: object) -> subprocess.CompletedProcess[bytes]:
    """Runs the tool on a terminal on which a person types."""
    master, slave = pty.openpty()
    try:
        os.write(master, answers.encode())
        return subprocess.run(
            [BINARY, *map(str, words)], stdin=slave, capture_output=True, timeout=MOST_SECONDS
        )
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.e2e
@pytest.mark.parametrize(("answer", "code"), [("n", 4), ("y", 0)])
def test_on_a_terminal_a_person_is_asked(ended: RunFactory, answer: str, code: int) -> None:
    before = steps(ended.run)
    said = answered(f"{answer}\n", "prune", ended.run.root, *RULES)
    assert said.returncode == code
    assert b"to the trash? [y/N]" in said.stderr
    assert (b"Nothing was done" in said.stderr) == (answer == "n")
    assert (steps(ended.run) == before) == (answer == "n")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("answers", "options", "code"),
    [
        ("y\nn\n", [], 4),
        ("y\ny\n", [], 0),
        ("y\ny\nn\n", ["--delete"], 4),
        ("n\n", ["--beside-trainer"], 4),
        ("y\n", ["--beside-trainer"], 0),
    ],
)
def test_beside_a_foreign_trainer_a_person_is_asked_once_more(
    tmp_path: Path, answers: str, options: list[str], code: int
) -> None:
    made = RunFactory(tmp_path)
    for step in (1, 2, 3):
        made.checkpoint(step, recorded=False, seconds_ago=7200 if step < 3 else 0)
    said = answered(answers, "prune", tmp_path, "--keep-last", "1", *options)
    assert said.returncode == code, said.stderr
    asks = "--beside-trainer" not in options
    assert (b"another program still writes here" in said.stderr) == asks
    left = ["ckpt-3"] if code == 0 else ["ckpt-1", "ckpt-2", "ckpt-3"]
    assert steps(made.run) == left


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Give one, such as --keep-last"),
        (["--keep-last", "-3"], "-3"),
        (["--keep-best", "loss:least:2"], "loss:min:3"),
        (["--keep-best", "accuracy:max:1"], "accuracy"),
    ],
)
def test_rules_that_make_no_sense(
    tool: Tool, ended: RunFactory, words: list[str], message: str
) -> None:
    said = tool("prune", ended.run.root, *words, "--yes")
    assert said.code == 2
    assert message in said.words


def test_a_live_trainer_is_asked_and_need_not_be_waited_for(tool: Tool, tmp_path: Path) -> None:
    run = two_branches(tmp_path / "run", live=True).run
    said = tool("prune", run.root, *RULES, "--yes", "--no-wait", "--json")
    assert said.json["trash"] is None
    assert (run.inbox / f"{said.json['command']}.json").exists()
    with AnsweringTrainer(run, moving_files(run)):
        said = tool("undo", run.root, "--timeout", "20")
    assert said.code == 0
    assert "Brought back" in said.data


@pytest.mark.e2e
def test_the_trash_is_emptied_only_when_confirmed(tool: Tool, ended: RunFactory) -> None:
    freed = tool("prune", ended.run.root, *RULES, "--yes", "--json").json["plan"]["freed_bytes"]
    assert run_binary("trash", ended.run.root, "empty").code == 4
    assert tool("trash", ended.run.root, "--yes").code == 2
    young = tool("trash", ended.run.root, "empty", "--older-than", "1", "--yes", "--json")
    assert young.json["freed_bytes"] == 0
    emptied = tool("trash", ended.run.root, "empty", "--yes", "--json")
    assert emptied.json["freed_bytes"] >= freed
    assert list(ended.run.trash.iterdir()) == []
    said = tool("undo", ended.run.root)
    assert (said.code, "nothing to bring back" in said.words) == (2, True)


def test_a_pinned_checkpoint_stays(tool: Tool, ended: RunFactory) -> None:
    assert tool("pin", ended.run.root, "ckpt-100").data == "Pinned ckpt-100.\n"
    assert "ckpt-100 *" in tool("ls", ended.run.root).data
    tool("prune", ended.run.root, "--keep-last", "1", "--yes")
    assert "ckpt-100" in steps(ended.run)
    assert tool("unpin", ended.run.root, "ckpt-100", "--json").json["pinned"] is False
    tool("prune", ended.run.root, "--keep-last", "1", "--yes")
    assert "ckpt-100" not in steps(ended.run)
    assert tool("pin", ended.run.root, "ckpt-100").code == 2


def test_yes_is_not_enough_beside_a_foreign_trainer(tool: Tool, tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    for step in (1, 2, 3, 4):
        made.checkpoint(step, recorded=False, seconds_ago=7200 if step < 3 else 0)
    words = ("prune", tmp_path, "--keep-last", "1", "--yes")
    refused = tool(*words)
    assert refused.code == 4
    assert "--beside-trainer" in refused.words
    assert steps(made.run) == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4"]
    assert tool(*words, "--beside-trainer").code == 0
    # ckpt-3 was written a moment ago.
    assert steps(made.run) == ["ckpt-3", "ckpt-4"]


def test_emptying_by_age_leaves_what_is_younger_and_is_written_down(
    tool: Tool, ended: RunFactory
) -> None:
    root = ended.run.root
    assert tool("prune", root, "--keep-last", "2", "--yes").code == 0
    kept = tool("trash", root, "empty", "--older-than", "12h", "--yes", "--json")
    assert kept.json["names"] == []
    gone = tool("trash", root, "empty", "--yes", "--json")
    assert gone.json["names"]
    assert gone.json["freed_bytes"] > 0
    last = tool("journal", root, "--json").json["entries"][-1]
    assert last["kind"] == "empty trash"
    assert tool("trash", root, "--json").json["trash"] == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("12h", 43200), ("7d", 604800), ("2w", 1209600), ("3", 10800)],
)
def test_ages(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


def test_an_age_that_is_none_is_refused(tool: Tool, ended: RunFactory) -> None:
    said = tool("trash", ended.run.root, "empty", "--older-than", "soon")
    assert said.code == 2
    assert "30m, 12h or 7d" in said.words


def test_through_a_link_to_the_run_directory(tool: Tool, ended: RunFactory, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(ended.run.root)
    before = steps(ended.run)
    pruned = tool("prune", link, "ckpt-100", "ckpt-200", "--yes", "--json").json
    assert tool("undo", link, "--json").json["trash"] == pruned["trash"]
    assert steps(ended.run) == before
    assert tool("trash", link, "--json").json["trash"] == []


def test_a_pin_of_what_is_in_the_trash_tells_the_way_back(tool: Tool, ended: RunFactory) -> None:
    pruned = tool("prune", ended.run.root, "ckpt-100", "--yes", "--json").json
    said = tool("pin", ended.run.root, "ckpt-100")
    assert said.code == 2
    assert f"undo {ended.run.root} --trash {pruned['trash']}" in said.words
    assert list(ended.run.pins_directory.iterdir()) == []


def test_a_damaged_manifest_is_a_problem(tool: Tool, ended: RunFactory) -> None:
    root = ended.run.root
    pruned = tool("prune", root, "ckpt-100", "--yes", "--json").json
    (ended.run.trash / pruned["trash"] / "manifest.json").write_bytes(b"{")
    for words in (("trash", root), ("trash", root, "empty", "--yes")):
        said = tool(*words, "--json")
        assert said.code == 1
        (problem,) = said.json["problems"]
        assert f"{pruned['trash']} cannot be used: " in problem
        assert problem in said.words
    assert (ended.run.trash / pruned["trash"] / "ckpt-100.index").exists()


@pytest.mark.e2e
@pytest.mark.parametrize(("answers", "code"), [("n\n", 4), ("y\nn\n", 4), ("y\ny\n", 0)])
def test_before_checkpoints_are_deleted_at_once_a_person_is_asked_twice(
    ended: RunFactory, answers: str, code: int
) -> None:
    said = answered(answers, "prune", ended.run.root, "ckpt-100", "--delete")
    assert said.returncode == code, said.stderr
    assert ("ckpt-100" in steps(ended.run)) == (code != 0)
    assert not ended.run.trash.exists() or list(ended.run.trash.iterdir()) == []


def test_a_live_trainer_moves_what_is_deleted_at_once(tool: Tool, tmp_path: Path) -> None:
    run = two_branches(tmp_path / "run", live=True).run
    with AnsweringTrainer(run, moving_files(run)) as trainer:
        said = tool("prune", run.root, "ckpt-100", "--delete", "--yes", "--json")
    assert (said.code, said.json["emptied"]["names"]) == (0, ["ckpt-100"])
    assert [command.kind.value for command in trainer.taken] == ["prune"]
    assert list(run.trash.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "{}", "ckpt-100"),
        ("inspect", "{}", "100"),
        ("verify", "{}", "100"),
        ("compare", "{}", "ckpt-100", "ckpt-200"),
        ("prune", "{}", "ckpt-100", "--yes"),
        ("prune", "{}", "100", "--yes"),
        ("pin", "{}", "ckpt-100"),
        ("pin", "{}", "100"),
        ("unpin", "{}", "100"),
        ("export", "{}", "100"),
    ],
)
def test_what_is_in_the_trash_is_answered_with_the_command_that_brings_it_back(
    tool: Tool, ended: RunFactory, words: tuple[str, ...]
) -> None:
    root = ended.run.root
    trash = tool("prune", root, "ckpt-100", "--yes", "--json").json["trash"]
    said = tool(*(word.format(root) for word in words))
    assert said.code == 2
    assert f"ckpt-100 is in the trash. Bring it back with `tfckpt-tui undo {root} --trash" in (
        said.words
    )
    assert trash in said.words


def test_what_is_not_pinned_is_not_unpinned(tool: Tool, ended: RunFactory) -> None:
    root = ended.run.root
    assert tool("unpin", root, "ckpt-100").data == "ckpt-100 is not pinned.\n"
    assert tool("pin", root, "ckpt-100").data == "Pinned ckpt-100.\n"
    assert tool("pin", root, "ckpt-100").data == "ckpt-100 is already pinned.\n"
    assert tool("unpin", root, "ckpt-100").data == "Unpinned ckpt-100.\n"
    kinds = [entry.kind for entry in read_entries(ended.run)]
    assert kinds[-2:] == [EventKind.PIN, EventKind.UNPIN]
    assert kinds.count(EventKind.UNPIN) == 1


def test_numbers_agree(tool: Tool, ended: RunFactory) -> None:
    root = ended.run.root
    assert "brings it back" in tool("prune", root, "ckpt-100", "--yes").data
    assert "brings them back" in tool("prune", root, "ckpt-200", "ckpt-300", "--yes").data


def test_every_size_covers_the_state_of_the_workers(tool: Tool, ended: RunFactory) -> None:
    run = ended.run
    own = run.worker_state_directory("ckpt-100")
    own.mkdir(parents=True)
    (own / "worker-0.data-00000-of-00001").write_bytes(bytes(1_000_000))
    record = load(run.record("ckpt-100"), CheckpointRecord)
    facts = FileFacts(
        name=".tfckpt/workers/ckpt-100/worker-0.data-00000-of-00001", size=1_000_000, crc32c=0
    )
    before = record.size
    store(run.record("ckpt-100"), replace(record, files=[*record.files, facts]))
    size = before + 1_000_000
    listed = {one["name"]: one for one in tool("ls", run.root, "--json").json["checkpoints"]}
    assert listed["ckpt-100"]["bytes"] == size
    assert "1.00 MB in 1 data file, 1.00 MB of it the workers' own state\n" in (
        tool("inspect", run.root, "ckpt-100").data
    )
    said = tool("prune", run.root, "ckpt-100", "--delete", "--yes", "--json")
    assert said.json["plan"]["freed_bytes"] == size
    # The documents about the checkpoint are deleted too.
    assert size <= said.json["emptied"]["freed_bytes"] < size + 10_000


@pytest.mark.parametrize("words", [("prune", "--keep-last", "1", "--yes"), ("pin", "200")])
def test_a_read_only_disk_is_not_called_the_disk_of_somebody_else(
    tool: Tool, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with small_tmpfs(tmp_path / "disk") as disk:
        run = without_heartbeats(two_branches(disk / "run")).run
        make_read_only(disk)
        said = tool(words[0], run.root, *words[1:])
    assert said.code == 1
    assert "(Read-only file system). Nothing was changed. Mount it writable" in said.words
    assert "owner" not in said.words


def test_a_directory_of_another_user_is_called_that(
    tool: Tool, open_place: Path, become_nobody: Callable[[], None]
) -> None:
    run = without_heartbeats(two_branches(open_place)).run
    tool("prune", run.root, "--keep-last", "1", "--dry-run")
    become_nobody()
    said = tool("prune", run.root, "--keep-last", "1", "--yes")
    assert f"Run this as its owner, {run.root.owner()}. To share " in said.words


def test_a_command_to_the_trainer_of_another_user_names_its_owner(
    tool: Tool, open_place: Path, become_nobody: Callable[[], None]
) -> None:
    run = two_branches(open_place).run
    with beating(run):
        # What it imports may belong to root alone.
        assert tool("save", run.root, "--no-wait").code == 0
        owner = run.root.owner()
        become_nobody()
        said = tool("save", run.root)
        os.seteuid(os.getuid())
    assert said.code == 1
    assert f"Nothing was changed. Run this as its owner, {owner}. To share " in said.words


def test_what_lay_beside_a_verified_checkpoint_does_not_become_it(
    tool: Tool, tmp_path: Path
) -> None:
    for step in (100, 200):
        for path in write_floats(tmp_path / f"m-{step}", [float(step)]):
            os.utime(path, (step, step))
    others = tmp_path / "m-100.data-00001-of-00002"
    others.write_bytes(bytes(1000))
    os.utime(others, (100, 100))
    tool("verify", tmp_path)
    assert tool("prune", tmp_path, "m-100", "--yes").code == 0
    assert tool("trash", tmp_path, "empty", "--yes").code == 0
    assert [one["name"] for one in tool("ls", tmp_path, "--json").json["checkpoints"]] == ["m-200"]
    refused = tool("prune", tmp_path, "m-100", "--delete", "--yes")
    assert "m-100 is not a checkpoint" in refused.words
    assert others.stat().st_size == 1000
