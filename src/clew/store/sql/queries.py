"""Named statements from a ``.sql`` file, so that SQL can be reviewed separately from Python.

A file consists of blocks headed ``-- name: x``. A block headed ``-- fragment: x`` is text that other blocks include
with ``{x}``. Parameters are written ``:name``.
"""

from __future__ import annotations

import re
from importlib import resources

from clew.errors import InternalError

__all__ = ["load_queries", "read_sql"]

_HEAD = re.compile(r"^-- (name|fragment): ([a-z_]+)$", re.MULTILINE)


def read_sql(path: str, package: str = "clew.store.sql") -> str:
    """Return the text of a data file in a package."""
    return resources.files(package).joinpath(path).read_text(encoding="utf-8")


def load_queries(path: str, package: str = "clew.store.sql") -> dict[str, str]:
    """Return the named statements of a file, with fragments filled in, without comments and extra white space."""
    pieces = _HEAD.split(read_sql(path, package))[1:]
    fragments: dict[str, str] = {}
    queries: dict[str, str] = {}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        target = fragments if kind == "fragment" else queries
        if name in target:
            raise InternalError(f"{path} names {name} twice")
        lines = (line.split("--")[0].strip() for line in body.splitlines())
        target[name] = " ".join(line for line in lines if line).rstrip(";")
    # Twice, because a fragment may include another.
    for name, body in queries.items():
        for fragment, text in (*fragments.items(), *fragments.items()):
            body = body.replace("{" + fragment + "}", text)
        queries[name] = body
    return queries
