"""What the pages of the documentation name exists."""

from __future__ import annotations

import inspect
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from documentation import DOCS, ROOT, is_listed
from tfckpt_trainer.catalog.directory.trash import MANIFEST
from tfckpt_trainer.rundir.paths import RunDirectory

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ARGUMENTS = {"name": "ckpt-500", "index": 0}


def leads_nowhere(page, link):
    """What is wrong with a link of a page; empty if it leads somewhere."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{page.relative_to(ROOT)}: there is no {path}"
    if anchor and anchor not in anchors(target):
        return f"{page.relative_to(ROOT)}: {target.name} has no #{anchor}"
    return ""


def anchors(page):
    """The names by which GitHub links to the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_leads_somewhere():
    links = [
        (page, link)
        for page in PAGES
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text())
    ]
    assert len(links) > 150
    assert [problem for page, link in links if (problem := leads_nowhere(page, link))] == []


def test_a_link_with_the_name_of_a_file_leads_to_that_file():
    named = re.compile(r"\[`?([\w./-]+\.(?:py|md|yaml)|[\w/]+/)`?\]\(([^)\s]+)\)")
    links = [(page.name, *link) for page in PAGES for link in named.findall(page.read_text())]
    assert len(links) > 5
    assert [link for link in links if Path(link[2]).name != Path(link[1]).name] == []


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {"index.md"} | {
        str(page.relative_to(DOCS)) for page in PAGES if DOCS in page.parents
    }


def test_the_recording_is_one_small_file_without_references_to_others():
    text = (DOCS / "images" / "recording.svg").read_text()
    assert len(text) < 1_500_000
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|@import|url\(", text)
    words = " ".join(ET.fromstring(text).itertext())
    for shown in (
        "tfckpt-tui demo",
        "Saved ckpt-",
        "kill -9",
        "restarted 1 of 3",
        "Restored ckpt-",
    ):
        assert shown in words
    for shown in ("Moved to the trash", "Brought back"):
        assert shown in words


def paths_of_a_run():
    """Every path that `RunDirectory` knows, and those of the modules that have their own."""
    run = RunDirectory(Path("RUN"))
    for name, member in inspect.getmembers(RunDirectory):
        if name.startswith("_") or name == "root":
            continue
        value = member.fget(run) if isinstance(member, property) else None
        if inspect.isfunction(member) and inspect.signature(member).return_annotation == "Path":
            wanted = list(inspect.signature(member).parameters)[1:]
            value = member(run, *(ARGUMENTS[argument] for argument in wanted))
        if isinstance(value, Path):
            yield name, value
    yield "TensorBoard", run.control / "tensorboard.json"
    yield "trash manifest", run.trash / "ID" / MANIFEST
    yield "export log", run.logs_directory / "export.log"
    yield "TensorBoard log", run.logs_directory / "tensorboard.log"


@pytest.mark.parametrize(("name", "path"), list(paths_of_a_run()))
def test_the_run_directory_page_lists_every_path(name, path):
    assert is_listed(str(path.relative_to("RUN"))), f"{name}: add {path} to run-directory.md"


def test_the_page_on_moving_a_script_shows_the_difference_of_the_examples():
    examples = ROOT / "trainer" / "tfckpt_trainer" / "examples"
    before, after = (
        (examples / name).read_text().partition('"""\n\n')[2].splitlines()
        for name in ("tutorial.py", "tutorial_moved.py")
    )
    shown = (DOCS / "how-to" / "move-a-script.md").read_text().partition("```diff\n")[2]
    lines = [line for line in shown.partition("```")[0].splitlines() if line[:1] in {"+", "-"}]
    added = [line for line in after if re.search(r"\w", line) and line not in before]
    removed = [line for line in before if re.search(r"\w", line) and line not in after]
    assert [line[1:] for line in lines if re.match(r"\+.*\w", line)] == added
    assert {line[1:] for line in lines if re.match(r"-.*\w", line)} <= set(removed)
    page = " ".join((DOCS / "how-to" / "move-a-script.md").read_text().split())
    assert f"These {len(added)} lines replace {len(removed)}:" in page


def test_the_page_on_moving_a_script_counts_the_lines_of_the_ports():
    page = (DOCS / "how-to" / "move-a-script.md").read_text()
    counted = re.findall(r"^\| `(ported_\w+\.py)` \|.*\| (\d+), (\d+) \|", page, re.MULTILINE)
    assert len(counted) == 5
    for name, added, changed in counted:
        script = (ROOT / "tests" / "training" / "scripts" / name).read_text()
        marks = re.findall(r"\S  # ([+~])", script)
        assert (marks.count("+"), marks.count("~")) == (int(added), int(changed)), name


def test_every_test_that_the_security_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named - set(re.findall(r"^(?:async )?def (test_\w+)", tests, re.MULTILINE)) == set()
    assert named


def test_the_messages_in_troubleshooting_are_those_of_the_product():
    page = (DOCS / "how-to" / "troubleshooting.md").read_text()
    rows = re.findall(r"(?m)^\| (.+?) \|", page)
    quoted = [text for row in rows for text in re.findall(r"`([^`]+)`", row) if " " in text]
    assert len(quoted) > 12
    files = [*ROOT.glob("trainer/**/*.py"), *ROOT.glob("tui/**/*.py")]
    sources = "\n".join(path.read_text() for path in files)
    # A message is often in pieces, one on each line.
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)
    for text in quoted:
        for piece in text.split(" … "):
            assert re.sub(r"\.$", "", piece) in joined or piece in IN_TABLES, piece


IN_TABLES = {"exact  unknown", "not possible", "cannot be read: Permission denied"}
"""What is put together from a label and a value, or said by the system."""
