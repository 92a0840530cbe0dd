"""The tool that measures a source tree, on a small one."""

from __future__ import annotations

from pathlib import Path

from tools.house import describe, find_cycles, read_tree

FILES = {
    "__init__.py": "from small.session.api import Engine\n",
    "session/api.py": """\
'''The engine.'''

from small.rooms import kitchen, run


class Engine:
    '''Of two words.'''

    def run(self) -> None:
        run(_once())  # a comment

    def stop(self) -> None:
        _twice(_twice(kitchen))


def _once() -> None: ...


def _twice(given: object) -> object:
    return given
""",
    "rooms/__init__.py": "def run(given: object) -> None: ...\n",
    "rooms/kitchen.py": """\
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .larder import Larder
""",
    "rooms/larder.py": "from small.rooms import kitchen\n",
}


def test_a_tree_is_measured(tmp_path: Path) -> None:
    """Docstrings and comments are not code; an import for type checkers can close a cycle too."""
    for name, source in FILES.items():
        path = tmp_path / "small" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    modules = read_tree(tmp_path / "small")
    assert find_cycles(modules) == [["small.rooms.kitchen", "small.rooms.larder"]]
    assert list(describe(modules)) == [
        "modules                5",
        "lines                  27",
        "lines of code          15",
        "comment lines          1 (3.7% of lines)",
        "largest module         small.session.api: 20 lines",
        "largest classes        Engine in small.session.api: 2 public methods",
        "private functions      2, 1 of them used once (50%)",
        "import cycles          1, 2 modules in them",
        "  small.rooms.kitchen · small.rooms.larder",
        "engine's imports       2 modules",
    ]
