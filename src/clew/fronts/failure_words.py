"""What went wrong and what to do next, in a person's words: one table for the page and the terminal.

A row is named by the cause of a provider's failure or by the code of an error. Codes that have none speak for
themselves: their message is a sentence of clew's own. What a provider or Python said is detail, and never the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["FAILURES", "FailureWords", "words_of"]


class FailureWords(msgspec.Struct, frozen=True):
    """``happened`` and ``next`` are sentences; ``{provider}`` and ``{key}`` stand for those of the error.

    ``again``: without anything else being done, another try may go well.
    """

    happened: str
    next: str
    again: bool = False


FAILURES: Final[Mapping[str, FailureWords]] = {
    # Causes of a provider's failure.
    "no_key": FailureWords(
        "There is no key for {provider}.", "Set {key} where clew runs and start it anew, or choose another model."
    ),
    "key_refused": FailureWords(
        "{provider} refused the key.", "Check the key and what it may use, or choose another model."
    ),
    "no_credit": FailureWords(
        "The account with {provider} has no credit left, or has reached a limit of its own.",
        "Look at its credit and limits, or choose another model.",
    ),
    "rate_limit": FailureWords(
        "{provider} takes no more requests for now.",
        "Wait a little and try again, or choose another model.",
        again=True,
    ),
    "provider_down": FailureWords(
        "{provider} has a problem of its own.", "Try again in a while, or choose another model.", again=True
    ),
    "unreachable": FailureWords(
        "{provider} could not be reached.", "Look at the network where clew runs, then try again.", again=True
    ),
    "broken_off": FailureWords(
        "The answer of {provider} broke off.", "What came is kept: go on from there.", again=True
    ),
    "too_large": FailureWords(
        "This is more than the model takes.",
        "Summarise the conversation, send less, or choose a model with a larger window.",
    ),
    "no_model": FailureWords("{provider} has no model of that name.", "Choose another model."),
    "request_refused": FailureWords(
        "{provider} did not take the request.", "Change what was sent, or choose another model; the details say why."
    ),
    "not_installed": FailureWords(
        "What speaks with {provider} is not installed.",
        "The details name the extra of clew that brings it: install that where clew runs, and start it anew.",
    ),
    "unknown": FailureWords("The model could not answer.", "Try again, or choose another model.", again=True),
    # Codes.
    "model_failed": FailureWords("The model could not answer.", "Try again, or choose another model.", again=True),
    "context_too_large": FailureWords(
        "This does not fit into the model’s window.",
        "Summarise the conversation, send less, or choose a model with a larger window.",
    ),
    "compaction_failed": FailureWords(
        "The earlier turns could not be summarised.", "Try again, or choose another model.", again=True
    ),
    "interrupted": FailureWords(
        "Interrupted: the server stopped while this was being written.",
        "What was written is kept: go on from there.",
        again=True,
    ),
    "storage_full": FailureWords(
        "There is no room left where the sessions are kept.", "Make room on that disk, then try again.", again=True
    ),
    "store_unavailable": FailureWords(
        "The place where the sessions are kept cannot be reached.", "See that it is there, then try again.", again=True
    ),
    "store_gone": FailureWords(
        "The place where the sessions are kept is gone.", "Put it back, then start the server anew."
    ),
    "store_busy": FailureWords(
        "Another program holds the place where the sessions are kept.", "Try again in a moment.", again=True
    ),
    "replica_away": FailureWords("This server takes nothing on now.", "Try again in a moment.", again=True),
    "internal_error": FailureWords(
        "Something went wrong in the server.", "Try again; if it stays, the server’s log says more.", again=True
    ),
}


def words_of(error: Mapping[str, Any]) -> FailureWords | None:
    """The words for a stored error or a problem, with its provider and key put in; None where it speaks for itself."""
    found = FAILURES.get(str(error.get("cause"))) or FAILURES.get(str(error.get("code")))
    if found is None:
        return None
    values = {"{provider}": error.get("provider_id") or "the provider", "{key}": error.get("key_name") or "its key"}
    said = [found.happened, found.next]
    for name, value in values.items():
        said = [text.replace(name, str(value)) for text in said]
    # A provider's id stays as it is written, also at the beginning of a sentence.
    said = [f"T{text[1:]}" if text.startswith("the provider") else text for text in said]
    return FailureWords(said[0], said[1], found.again)
