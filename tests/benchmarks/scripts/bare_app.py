"""The smallest Textual app there is: what any terminal app in Textual costs."""

from textual.app import App, ComposeResult
from textual.widgets import Footer, Header, Static


class Bare(App[None]):
    BINDINGS = [("q", "quit", "Quit")]

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static("bare app ready")
        yield Footer()


Bare().run()
