"""Send a test alert to the receivers of a run."""

from __future__ import annotations

import click

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_table
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.configured import AlertTestReport, DeliveryFacts
from tfckpt_tui.services.runs.alert_test import send_test_alert


@click.command()
@click.argument("what", type=click.Choice(["test"]), metavar="test")
@RunArgument
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in EventKind]),
    default=EventKind.FAILED.value,
    show_default=True,
    metavar="KIND",
    help="The kind of event that the alert tells.",
)
@prints(AlertTestReport)
@on_open_run
def alert(run: RunDirectory, what: str, kind: str, as_json: bool) -> int:
    """Send a test alert to each receiver of a run, once, from this machine.

    Receivers are in `.tfckpt/config.toml` of the run. Exits with 1 if an alert was not sent.
    """
    del what
    deliveries = send_test_alert(run, EventKind(kind))
    if as_json:
        facts = (
            DeliveryFacts(
                receiver=clean(delivery.receiver),
                sent=delivery.is_sent,
                result=clean(delivery.result),
                http_status=delivery.http_status,
                seconds=delivery.seconds,
            )
            for delivery in deliveries
        )
        print_json(AlertTestReport(kind=EventKind(kind), deliveries=tuple(facts)))
    else:
        rows = [
            (
                delivery.receiver,
                "sent" if delivery.is_sent else "not sent",
                units.duration(delivery.seconds),
                delivery.result,
            )
            for delivery in deliveries
        ]
        print_table(("RECEIVER", "ALERT", "TIME", "RESULT"), rows, right={2})
    all_sent = all(delivery.is_sent for delivery in deliveries)
    return int(ExitCode.DONE if all_sent else ExitCode.PROBLEM)
