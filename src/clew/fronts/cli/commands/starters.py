"""``clew new``: create a small project with tests from a starter, one of the folders of ``clew/starters``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Final, Literal

import clew
from clew.errors import InvalidInput
from clew.fronts.cli.command import flag

__all__ = ["KINDS", "new"]

Kind = Literal["support-desk", "slack-bot", "batch", "coding-agent"]

KINDS: Final[dict[Kind, str]] = {
    "support-desk": "a help desk whose refunds are approved by a person; each customer sees only their own",
    "slack-bot": "a bot in Slack threads: each mention is answered once, however often it is delivered",
    "batch": "a list of jobs with typed answers that continues after a kill, and what it has cost",
    "coding-agent": "an agent that edits the files of a folder, asks first, and can be taken back",
}
_NEXT: Final = """\
python -m venv .venv && . .venv/bin/activate
pip install "PATH/TO/clew[server,models,cli]"   # a checkout, until clew-sessions is published
pip install -e ".[test]"
pytest"""
_REQUIREMENT: Final = re.compile(r'"(clew-sessions\[[\w,]+\])"')


def new(
    kind: Kind | None = None,
    folder: Path | None = None,
    /,
    *,
    list_: Annotated[bool, flag("List the starters.", "--list")] = False,
) -> None:
    """Create a small project with tests: a support desk, a Slack bot, a batch or a coding agent. By default, list them.

    The folder must be missing or empty; by default it is named after the starter.

    Example: clew new support-desk my-desk
    """
    if kind is None or list_:
        width = max(map(len, KINDS))
        for name, about in KINDS.items():
            print(f"{name:<{width}}  {about}")
        return
    folder = folder or Path(kind)
    _check_empty(folder)
    _copy(_starter(kind), folder, kind)
    print(f"{folder}: {KINDS[kind]}\n\ncd {shlex.quote(str(folder))}\n{_NEXT}\n\nREADME.md says how to run it.")


def _starter(kind: Kind) -> Traversable:
    return files("clew").joinpath("starters", kind)


def _check_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise InvalidInput(f"{folder} exists and is not an empty folder; name another one: clew new KIND FOLDER")


def _copy(starter: Traversable, folder: Path, kind: Kind) -> None:
    """Write the starter's files, with the folder's name as the project's, and this version of clew as the oldest."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or kind
    for path, content in _read(starter):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path == "pyproject.toml":
            content = content.replace(f'name = "{kind}"', f'name = "{name}"', 1)
            content = _REQUIREMENT.sub(rf'"\1>={clew.__version__}"', content, count=1)
        elif path == "README.md":
            content = content.replace(f"# {kind}\n", f"# {name}\n", 1)
        with target.open("x", encoding="utf-8") as file:
            file.write(content)


def _read(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each file of a folder, by its path below it; what Python has compiled is left out."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            yield prefix + entry.name, entry.read_text("utf-8")
        elif not entry.name.startswith((".", "__")):
            yield from _read(entry, f"{prefix}{entry.name}/")
