"""The command `tfckpt-tui`; `python -m tfckpt_tui` where its script is not in the search path."""

import sys


def main() -> None:
    """Runs the command line; an interrupt while it is imported ends it without a traceback."""
    try:
        from tfckpt_tui.cli.main import main as run_command_line
    except KeyboardInterrupt:
        # 128 + SIGINT. Nothing was done yet, and no name of this package may be known.
        sys.exit(130)
    run_command_line()


if __name__ == "__main__":
    main()
