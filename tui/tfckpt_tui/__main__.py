"""`python -m tfckpt_tui`: the command line, where its script is not in the search path."""

from tfckpt_tui.cli.main import main

if __name__ == "__main__":
    main()
