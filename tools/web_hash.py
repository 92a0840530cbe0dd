"""Hashes the sources of the page: the path and content of every file in `web/` that can change the build.

`make web` writes the hash next to the build, and a test compares it, so that an outdated build is detected.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
WEB: Final = ROOT / "web"
DIST: Final = ROOT / "src" / "clew" / "fronts" / "web" / "dist"
STAMP: Final = DIST / "source.sha256"

# Files of tools and tests, which are not part of the build.
_FOLDERS: Final = frozenset(
    {"node_modules", "dist", "coverage", "test-results", "playwright-report", "__snapshots__", "test", "tests"}
)
_ENDINGS: Final = (".test.ts", ".test.tsx", ".spec.ts", ".spec.tsx", ".tsbuildinfo", ".log", ".orig", ".rej", ".swp")


def main(arguments: list[str]) -> int:
    """Print the hash; with `--write`, also write it next to the build."""
    found = web_hash()
    if "--write" in arguments:
        STAMP.write_text(found + "\n", encoding="ascii")
    print(found)
    return 0


def web_hash(web: Path = WEB) -> str:
    """Return one hash of all files, in the order of their paths."""
    digest = sha256()
    for name, path in sorted((path.relative_to(web).as_posix(), path) for path in _files(web)):
        data = path.read_bytes()
        # Lengths separate each name and content from the next.
        digest.update(f"{len(name.encode())}:{name}{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            if path.name not in _FOLDERS and not path.name.startswith("."):
                yield from _files(path)
        elif not path.name.endswith(_ENDINGS) and path.name != ".DS_Store":
            yield path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
