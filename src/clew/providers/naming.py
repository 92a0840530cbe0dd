"""Parsing of a model's name: ``provider/model``, ``provider/model:variant``, or its parts.

Ids of some models contain a colon (``openrouter/x:free``, ``ollama/llama3:8b``). So a name that is known as an id is
that model; otherwise the text after the last colon is the variant if the model has it, or part of the id if the
provider's ids may contain colons. In all other cases it is an unknown variant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clew.errors import UnknownVariant
from clew.transcript.session import Model, read_model

__all__ = ["parse_model"]


def parse_model(
    named: str | Model | dict[str, Any],
    *,
    variants_of: Callable[[Model], Sequence[str]],
    is_id: Callable[[Model], bool],
    takes_colons: Callable[[str], bool],
) -> Model:
    """Return the model of a name. ``is_id``: exactly this id is known. Raises :class:`UnknownVariant`."""
    model = read_model(named)
    base, colon, last = model.model_id.rpartition(":")
    if isinstance(named, str) and colon and base and not is_id(model):
        short = Model(model.provider_id, base)
        # Several colons are part of the id, as in ``ft:gpt-4o:acme::x``, and so is one if the provider's ids have them.
        if last in variants_of(short) or not (":" in base or takes_colons(model.provider_id)):
            model = Model(model.provider_id, base, last)
    has = variants_of(model.plain)
    if model.variant is not None and model.variant not in has:
        there = f"it has {', '.join(has)}" if has else "it has none"
        raise UnknownVariant(f"{model} has no variant {model.variant!r}; {there}", variants=list(has))
    return model
