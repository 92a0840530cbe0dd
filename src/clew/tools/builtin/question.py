"""``question``: something only a human can answer. The call is the question; it is never executed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clew.errors import ToolFailed
from clew.tools.decorator import tool

__all__ = ["question"]


@tool(asks_human=True, capabilities=())
async def question(
    question: Annotated[str, Meta(description="The question, with what is needed to answer it.", min_length=1)],
    options: Annotated[
        list[str], Meta(description="Answers to choose from; another one can be given.", max_length=20)
    ] = [],  # noqa: B006 - never changed, and shown in the schema
) -> str:
    """Ask the user a question and wait for the answer.

    Only for what cannot be found out otherwise and would change what is done.
    """
    raise ToolFailed("a question is answered by a human; this call cannot be executed")
