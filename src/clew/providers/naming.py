"""What a model is called: ``provider/model``, ``provider/model:variant``, or its parts. The one place that reads it.

Ids of some models hold a colon themselves (``openrouter/x:free``, ``ollama/llama3:8b``), so what stands behind the last
one is decided by what there is: an id that is known as a whole is that model; else a variant the model has is one; else
it belongs to the id where a provider's ids may hold colons. Everywhere else it is a variant that is not there.
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
    """The model that is meant. ``is_id``: it is known under just this id. Raises :class:`UnknownVariant`."""
    model = read_model(named)
    base, colon, last = model.model_id.rpartition(":")
    if isinstance(named, str) and colon and base and not is_id(model):
        short = Model(model.provider_id, base)
        # More than one colon is an id's own, as in ``ft:gpt-4o:acme::x``; so is one of a provider whose ids have them.
        if last in variants_of(short) or not (":" in base or takes_colons(model.provider_id)):
            model = Model(model.provider_id, base, last)
    has = variants_of(model.plain)
    if model.variant is not None and model.variant not in has:
        there = f"it has {', '.join(has)}" if has else "it has none"
        raise UnknownVariant(f"{model} has no variant {model.variant!r}; {there}", variants=list(has))
    return model
