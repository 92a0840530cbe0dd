"""``clew token``: tokens of owners, who can use a server in addition to the administrator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import cyclopts

from clew.clock import SystemClock
from clew.fronts.cli.command import Json, option, print_json
from clew.fronts.cli.safe_text import plain
from clew.fronts.owner_tokens import OwnerTokens
from clew.tools.process.owner_sandbox import find_owner_sandbox

__all__ = ["tokens"]

tokens = cyclopts.App(name="token", help="Owner tokens: each owner sees only their own sessions on `clew serve`.")


@tokens.command
def add(
    name: str,
    /,
    *,
    root: Annotated[list[Path] | None, option("A folder their sessions may work in or below; repeatable.")] = None,
) -> None:
    """Create an owner's token and print it; it cannot be shown again. Running servers accept it immediately.

    Example: clew token add ada --root /srv/ada
    """
    roots = tuple(str(folder.expanduser().resolve()) for folder in root or ())
    token = OwnerTokens().add(name, SystemClock().now_ms(), roots)
    print(token)
    where = f"only in these folders: {', '.join(map(plain, roots))}" if roots else "in no folder: no --root was given"
    notes = (
        f"the token is shown only once; {plain(name)} opens the page with #token=TOKEN at the end of its address",
        f"{plain(name)} can create sessions, see and change only their own, and answer their approvals",
        f"these sessions work {where}; each can use only the files of its own workspace",
        "their bash commands run only in a sandbox without network, for any value of tools.sandbox; "
        + find_owner_sandbox().here,
        "they use your model keys, can fetch public web pages, and can use MCP servers with a url, or with a command "
        "and owners = true",
    )
    for line in notes:
        print(f"clew: {line}", file=sys.stderr)


@tokens.command(name="list")
def list_tokens(*, json: Json = False) -> None:
    """List the owners who have a token, and their folders.

    Example: clew token list
    """
    known = OwnerTokens().list()
    if json:
        print_json([{"name": owner.name, "roots": owner.roots, "created_at": owner.created_at} for owner in known])
        return
    for owner in known:
        print("\t".join(map(plain, (owner.name, *owner.roots))))


@tokens.command
def revoke(name: str, /) -> None:
    """Revoke an owner's token. Their sessions stay.

    Example: clew token revoke ada
    """
    OwnerTokens().revoke(name)
