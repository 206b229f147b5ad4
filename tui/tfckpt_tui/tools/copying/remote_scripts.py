"""The scripts that run on another host: plain `sh` and the programs that every Unix has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from shlex import quote

from tfckpt_trainer.words.times import utc_time
from tfckpt_tui.tools.copying.destination import emptied_by
from tfckpt_tui.tools.copying.ssh_connection import EXISTS, INCOMPLETE

_SIZE = """size() {
  stat -c %s -- "$1" 2>/dev/null || stat -f %z -- "$1" 2>/dev/null || wc -c <"$1"
}
"""

_LINKED = """linked() {
  d=${1#./}
  while [ "$d" != "${d%/*}" ]; do
    d=${d%/*}
    if [ -L "./$d" ]; then return 0; fi
  done
  return 1
}
plain() {
  if linked "$1"; then echo "$d is a symbolic link" >&2; exit 1; fi
}
"""
"""Whether a directory of a path is a link: no link in the run directory is followed."""

_SHARED = """share() {
  rights=$1 new=$2
  set -- $(ls -ldn -- "$3")
  shared=$1 group=$4
  set -- $(ls -ldn -- "$new")
  case $shared in
    ?????w*) [ "$4" != "$group" ] || chmod "$rights" "$new" ;;
  esac
}
make() {
  if [ ! -d "$1" ]; then
    make "$(dirname -- "$1")"
    mkdir -p -- "$1" || exit 1
    share g+rwx "$1" "$(dirname -- "$1")"
  fi
}
"""
"""New files and directories are for the group that shares their directory, as on this machine."""

_DIGITS = "[0-9]" * 5
_LIVE_MINUTES = 2


def open_script(path: str) -> str:
    """Prints whether the host can be copied to and whether a run trains there.

    The answer has the lines `rsync` if the host has it, `missing` without a directory, `locked` if
    a trainer holds its lock, `kept` if this user may not replace the state file, and recent
    heartbeats.
    """
    return f"""
begin
command -v rsync >/dev/null 2>&1 && echo rsync
if cd -- {_path(path)} 2>/dev/null; then
  for d in .tfckpt .tfckpt/records .tfckpt/workers .tfckpt/copying; do
    if [ -L "$d" ]; then echo "$d is a symbolic link" >&2; exit 1; fi
  done
  if [ -e .tfckpt/trainer.lock ] && command -v flock >/dev/null 2>&1; then
    flock -n .tfckpt/trainer.lock true
    [ $? = 1 ] && echo locked
  fi
  case $(ls -ld .) in
    ?????????[tT]*)
      if [ -e checkpoint ] && [ ! -O checkpoint ] && [ ! -O . ] && [ "$(id -u)" != 0 ]; then
        echo kept
      fi ;;
  esac
  if [ -d .tfckpt/status ]; then
    find .tfckpt/status -type f -name '*.json' -mmin -{_LIVE_MINUTES} -exec cat {{}} \\; \\
      -exec echo \\; 2>/dev/null
  fi
elif [ -e {_path(path)} ] || [ -L {_path(path)} ]; then
  cd -- {_path(path)} || exit 1
else
  echo missing
fi
end"""


def create_script(path: str) -> str:
    """Creates a directory with those for files of this library."""
    return f"""{_SHARED}
make {_path(path)}/.tfckpt/copying
begin
end"""


def survey_script(directory: str, names: Sequence[str], paths: Sequence[str]) -> str:
    """Prints the free space, a line for each path, and the files of each checkpoint.

    A line for a path is its size, `-` if it is missing and `x` if it is not a regular file.
    """
    lines = [
        f"""for f in {_path(name)}.index {_path(name)}.meta \
{_path(name)}.data-{_DIGITS}-of-{_DIGITS}; do
  if [ -e "$f" ] || [ -L "$f" ]; then printf '%s %s\\n' {number} "${{f##*.}}"; fi
done"""
        for number, name in enumerate(names)
    ]
    return _in(
        directory,
        _SIZE,
        _LINKED,
        """look() {
  if [ -L "$1" ] || linked "$1"; then echo x
  elif [ -f "$1" ]; then size "$1"
  elif [ -e "$1" ]; then echo x
  else echo -; fi
}
begin
df -Pk . | tail -n 1""",
        *(f"look {_path(path)}" for path in paths),
        *lines,
        "end",
    )


def free_script(directory: str) -> str:
    """Prints the free space for a directory that does not exist."""
    return f"""
d={_path(directory)}
while [ ! -d "$d" ]; do d=$(dirname -- "$d"); done
begin
df -Pk -- "$d" | tail -n 1
end"""


def remove_script(directory: str, paths: Sequence[str], emptied: Sequence[str] = ()) -> str:
    """Deletes files, and then directories that are empty."""
    steps = [f"plain {_path(path)}\nrm -f -- {_path(path)} || exit 1" for path in paths]
    steps += [_remove_if_empty(place) for place in emptied]
    return _in(directory, _LINKED, *steps, "begin", "end")


def commit_script(directory: str, moves: Sequence[tuple[str, str, float]], staging: str) -> str:
    """Flushes files and renames them, the last one after the others are flushed."""
    *others, last = moves
    parents = sorted({str(PurePosixPath(new).parent) for _, new, _ in moves})
    steps = [f"plain {_path(path)}" for path in (*(new for _, new, _ in moves), f"{staging}/.")]
    steps.append("# Old versions of sync flush everything, whatever they are given.")
    for old, _, modified_at in moves:
        steps.append(f"flush {_path(old)}")
        steps.append(f"TZ=UTC0 touch -t {_stamp(modified_at)} -- {_path(old)}")
        # A file of which rsync was cut off is for its owner alone.
        steps.append(f"chmod =rw,g-w,o-w {_path(old)}")
    steps += [f"make {_path(parent)}" for parent in parents]
    steps += [f"share g+r {_path(old)} {_path(PurePosixPath(new).parent)}" for old, new, _ in moves]
    # What has its name before others are refused looks like a damaged checkpoint.
    steps += [f"absent {_path(new)}" for _, new, _ in moves]
    steps += [f"move {_path(old)} {_path(new)}" for old, new, _ in others]
    steps += [f"flush {_path(parent)}" for parent in parents]
    steps += [f"move {_path(last[0])} {_path(last[1])}", "flush ./."]
    left = emptied_by([old for old, _, _ in moves], staging)
    steps += [_remove_if_empty(place) for place in left]
    return _in(
        directory,
        _FLUSH,
        _LINKED,
        _SHARED,
        f"""absent() {{
  if [ -e "$1" ] || [ -L "$1" ]; then
    echo "$1 exists; it was not replaced" >&2
    exit {EXISTS}
  fi
}}
move() {{
  absent "$2"
  mv -- "$1" "$2" || exit 1
}}""",
        *steps,
        "begin",
        "end",
    )


def _remove_if_empty(directory: str) -> str:
    return f"rmdir -- {_path(directory)} 2>/dev/null"


def read_script(directory: str, path: str) -> str:
    """Prints `+` and the content of a file, or `-` if there is none."""
    name = _path(path)
    show = f"if [ -e {name} ]; then echo +; cat <{name} || exit 1; else echo -; fi"
    return _in(directory, "begin", show, "end")


def write_script(directory: str, path: str, size: int) -> str:
    """Replaces a file by its input of `size` bytes, unless some of it is missing."""
    place = PurePosixPath(path)
    temporary = _path(place.with_name(f".{place.name}.tfckpt.tmp"))
    return _in(
        directory,
        _SIZE,
        _FLUSH,
        _SHARED,
        f"cat >{temporary} || exit 1",
        f'if [ "$(size {temporary})" -ne {size} ]; then exit {INCOMPLETE}; fi',
        f"flush {temporary}",
        f"share g+r {temporary} {_path(place.parent)}",
        f"if ! mv -f -- {temporary} {_path(path)}; then rm -f -- {temporary}; exit 1; fi",
        f"flush {_path(place.parent)}",
        "begin",
        "end",
    )


_FLUSH = """flush() { sync -- "$1" 2>/dev/null || sync; }
"""


def _in(directory: str, *lines: str) -> str:
    return "\n".join([f"cd -- {_path(directory)} || exit 1", *lines])


def _path(path: str | PurePosixPath) -> str:
    """Returns a path as one word for `sh` that no program takes for an option."""
    path = str(path)
    return quote(path if path.startswith("/") else f"./{path}")


def _stamp(at: float) -> str:
    return utc_time(max(0.0, at), "%Y%m%d%H%M.%S", impossible="197001010000.00")
