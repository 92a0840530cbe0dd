"""``write``: a whole file, made or replaced at once."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clew.errors import ToolFailed
from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.tools.files.access import file_errors, replace
from clew.tools.files.paths import judged_path, path_targets
from clew.tools.files.walk import count
from clew.tools.thread import run_in_thread

__all__ = ["write"]


@tool(needs_workspace=True, targets=path_targets("write"))
async def write(
    path: Annotated[str, Meta(description="The file, relative to the workspace or absolute.", min_length=1)],
    content: Annotated[str, Meta(description="The whole text of the file.")],
    context: ToolContext,
) -> str:
    """Write a text file, replacing it if it is there; folders on the way are made.

    Use edit to change a part of a file.
    """
    if path.endswith(("/", "/.", "/..")):
        raise ToolFailed(f"{path} names a folder; give the name of a file")
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("the content holds half of a surrogate pair and cannot be written") from error
    place = await judged_path("write", path, context)
    with file_errors(place.shown):
        before = await run_in_thread(replace, place.path, data, make_folders=True)
    if before is None:
        return f"made {place.shown} with {count(len(data), 'byte')}"
    return f"replaced {place.shown}: {count(len(data), 'byte')}, before {before:,}"
