"""A report as Markdown."""

from __future__ import annotations

from pathlib import PurePath

from tfckpt_tui.formats.markdown import escape, table
from tfckpt_tui.tools.reporting.json_report import RunReport
from tfckpt_tui.tools.reporting.sections import Block, Figures, Log, Table, sections_of


def as_markdown(report: RunReport) -> str:
    """Returns a report as Markdown, without figures."""
    lines = [f"# {escape(PurePath(report.run.directory).name)}"]
    for section in sections_of(report):
        lines += ["", f"## {section.title}"]
        for block in section.blocks:
            shown = _lines(block)
            lines += ["", *shown] if shown else []
    return "\n".join(lines) + "\n"


def _lines(block: Block) -> list[str]:
    if isinstance(block, Figures):
        return []
    if isinstance(block, str):
        return [escape(block)]
    if isinstance(block, Log):
        return _table(Table((), tuple(("log", line) for line in block.lines)))
    return _table(block)


def _table(block: Table) -> list[str]:
    header = block.header or ("", "")
    return table(header, [[escape(cell) for cell in row] for row in block.rows])
