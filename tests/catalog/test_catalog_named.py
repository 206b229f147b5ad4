"""Few checkpoints are scanned for named ones, and the answer is that of a scan of all."""

from __future__ import annotations

import random

import pytest
from checkpoint_directory import LONG_AGO, NOW, CheckpointDirectory

from tfckpt_trainer.catalog.directory.pins import pin
from tfckpt_trainer.catalog.directory.stored_results import store_result
from tfckpt_trainer.catalog.scan import named_checkpoints
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.named_checkpoints import find_named, scan_for_prune
from tfckpt_trainer.catalog.scan.protection import protections
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_checkpoint
from weekly import weekly

COUNT = 8


def random_directory(made: CheckpointDirectory, chance: random.Random) -> None:
    """Writes checkpoints, some of them damaged, pinned, verified, linked or restored."""
    made.run.create()
    kind = chance.choice(["ours", "listed", "foreign", "mixed"])
    names: list[str] = []
    for step in chance.sample(range(100, 100 + 3 * COUNT), COUNT):
        age = LONG_AGO + chance.choice([0, 100, 200, 300])
        is_ours = kind == "ours" or (kind == "mixed" and chance.random() < 0.5)
        if is_ours:
            loss = chance.choice([1.0, float("nan"), None])
            names.append(made.ours(step, chance.choice([0, 0, 1]), age=age, metrics={"loss": loss}))
        else:
            names.append(f"ckpt-{step}")
            is_listed = kind == "listed" or chance.random() < 0.3
            made.tensorflow(names[-1], age=age, listed=is_listed)
        if chance.random() < 0.15:
            made.restored(chance.choice(names), step, chance.choice([0, 1, 2]))
    for name in names:
        what = chance.random()
        if what < 0.2:
            found = verify_checkpoint(made.run, name, finite=chance.random() < 0.5)
            assert found is not None
            store_result(made.run, found.record)
        elif what < 0.35:
            (made.root / f"{name}.data-00000-of-00001").unlink()
        elif what < 0.4:
            pin(made.run, name)
        elif what < 0.45 and made.run.record(name).exists():
            made.run.record(name).write_bytes(b"damaged")
        elif what < 0.5:
            (made.root / f"best-{name}.index").symlink_to(f"{name}.index")


@pytest.mark.parametrize("seed", [*range(25), *weekly(*range(25, 150))])
def test_a_prune_is_decided_as_by_a_scan_of_all(made, monkeypatch, seed):
    chance = random.Random(seed)
    monkeypatch.setattr(named_checkpoints, "NEWEST_COMPARED", chance.choice([1, 2, 4]))
    random_directory(made, chance)
    found = Catalog(made.run).scan(NOW)
    names = [checkpoint.name for checkpoint in found]
    in_use = {chance.choice(names): "open in another process"}
    protected = protections(found, in_use)
    for chosen in [[name] for name in names] + [chance.sample(names, 2)]:
        catalog, some = scan_for_prune(made.run, chosen, in_use, NOW)
        again = protections(some, in_use)
        assert [again.get(name) for name in chosen] == [protected.get(name) for name in chosen]
        assert all(catalog.evidence(name).files.name == name for name in chosen)


@pytest.mark.parametrize("seed", range(10))
def test_a_name_or_a_step_is_found_as_by_a_scan_of_all(made, seed):
    chance = random.Random(seed)
    random_directory(made, chance)
    everything = Catalog(made.run).scan(NOW)
    steps = [str(checkpoint.step) for checkpoint in everything]
    for text in [*(checkpoint.name for checkpoint in everything), *steps, "7", "007"]:
        for name in (one.name for one in find_named(made.run, [text], NOW).values()):
            assert [text] in ([name], *[[s] for s in steps])
            with_text = [c.name for c in everything if text in (c.name, str(c.step))]
            assert with_text == [name]


def test_few_of_many_are_scanned(made):
    made.run.create()
    for step in range(60):
        made.ours(step)
    _, some = scan_for_prune(made.run, ["ckpt-7", "ckpt-8"], {}, NOW)
    assert len(some) == 2 + named_checkpoints.NEWEST_COMPARED
    assert protections(some).keys() & {"ckpt-7", "ckpt-8"} == set()
    assert find_named(made.run, ["7", "ckpt-8"], NOW).keys() == {"7", "ckpt-8"}
    # These are the newest of all, so the state of all others counts.
    for name in ("ckpt-59", "ckpt-58"):
        _, found = scan_for_prune(made.run, [name], {}, NOW)
        assert protections(found).get(name) == protections(Catalog(made.run).scan(NOW)).get(name)


def test_the_only_verified_one_needs_no_scan_of_all(made):
    for step in range(60):
        made.tensorflow(f"ckpt-{step}", listed=step > 55)
    found = verify_checkpoint(made.run, "ckpt-7")
    assert found is not None
    store_result(made.run, found.record)
    _, some = scan_for_prune(made.run, ["ckpt-7"], {}, NOW)
    assert len(some) < 60
    assert protections(some)["ckpt-7"] == "the last verified"
