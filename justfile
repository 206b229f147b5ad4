# Recipes for work on this project; `just` alone lists them.

python := ".venv/bin/python"

_list:
    @just --list --unsorted

# Create .venv with everything that the other recipes need.
setup:
    python3 -m venv .venv
    .venv/bin/pip install -q -e '.[test,lint,docs]'

# Run the tests that start no process, run no app and try few cases: three of five, in a minute.
quick *arguments:
    .venv/bin/pytest -m quick {{ arguments }}

# Run the tests that each change must pass.
test *arguments:
    .venv/bin/pytest {{ arguments }}

# Install the wheel beside each release of TensorFlow and try it there; or `just matrix 2.16-3.11`.
matrix *cells:
    .ci/matrix {{ cells }}

# Run what repeats them on more strategies, scripts, cases and examples.
weekly *arguments:
    .venv/bin/pytest -m weekly {{ arguments }}

# Inject faults by chance, and tell what they violate; or `just campaign --only AREA`, `--budget 1h`.
campaign *arguments:
    {{ python }} -m tests.campaign {{ arguments }}

# Plant small bugs, and tell which tests notice each; or `just planted --only NAME`, `--likely`.
planted *arguments:
    {{ python }} -m tests.planted {{ arguments }}

# Check style, types and import rules.
lint:
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy
    .venv/bin/lint-imports

# Accept the screens as they are now; look at the changed SVG files before you commit them.
snapshots *arguments:
    .venv/bin/pytest tests/tui/test_app_snapshots.py --snapshot-update {{ arguments }}

# Generate the reference and build the site in site/; with `serve`, show it while you write.
docs command="build":
    {{ python }} docs/tools/make_reference.py
    NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs {{ command }} --strict

# Make the pictures, the recording and the command output of the docs from real runs.
pictures:
    {{ python }} docs/tools/make_picture.py
    {{ python }} docs/tools/make_recording.py
    {{ python }} docs/tools/make_session.py

# Run benchmarks, and publish their figures; or only some: `just bench verify`; or the quick ones, to compare: `just bench --quick`.
bench *arguments="--publish":
    {{ python }} tests/benchmarks/run_all.py {{ arguments }}
