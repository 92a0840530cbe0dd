"""Named statements out of a ``.sql`` file, so that SQL can be reviewed without opening Python.

A file holds blocks headed ``-- name: x``. A block headed ``-- fragment: x`` is text that other blocks take in with
``{x}``. Parameters are written ``:name``.
"""

from __future__ import annotations

import re
from importlib import resources

from clew.errors import InternalError

__all__ = ["load_queries", "read_sql"]

_HEAD = re.compile(r"^-- (name|fragment): ([a-z_]+)$", re.MULTILINE)


def read_sql(path: str) -> str:
    """The text of a data file beside this module."""
    return resources.files("clew.store.sql").joinpath(path).read_text(encoding="utf-8")


def load_queries(path: str) -> dict[str, str]:
    """The named statements of a file, fragments filled in, comments and surplus white space gone."""
    pieces = _HEAD.split(read_sql(path))[1:]
    fragments: dict[str, str] = {}
    queries: dict[str, str] = {}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        target = fragments if kind == "fragment" else queries
        if name in target:
            raise InternalError(f"{path} names {name} twice")
        lines = (line.split("--")[0].strip() for line in body.splitlines())
        target[name] = " ".join(line for line in lines if line).rstrip(";")
    # Twice, since a fragment may take in another.
    for name, body in queries.items():
        for fragment, text in (*fragments.items(), *fragments.items()):
            body = body.replace("{" + fragment + "}", text)
        queries[name] = body
    return queries
