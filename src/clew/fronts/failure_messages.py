"""User messages for failures: what happened and what to do next. One table for the page and the terminal.

A row is named by the cause of a provider's failure or by an error code. Codes without a row show their own message.
Text from a provider or from Python is shown as details, never as the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["FAILURES", "FailureMessage", "failure_message"]


class FailureMessage(msgspec.Struct, frozen=True):
    """A message of two sentences; ``{provider}`` and ``{key}`` are replaced by those of the error.

    ``again``: a retry may succeed without any other change.
    """

    happened: str
    next: str
    again: bool = False


FAILURES: Final[Mapping[str, FailureMessage]] = {
    # Causes of a provider's failure.
    "no_key": FailureMessage(
        "There is no key for {provider}.", "Set {key} in clew's environment and restart it, or choose another model."
    ),
    "key_refused": FailureMessage(
        "{provider} refused the key.", "Check the key and its permissions, or choose another model."
    ),
    "no_credit": FailureMessage(
        "The {provider} account is out of credit or has reached its limit.",
        "Check its credit and limits, or choose another model.",
    ),
    "rate_limit": FailureMessage(
        "{provider} is limiting requests.",
        "Wait a moment and try again, or choose another model.",
        again=True,
    ),
    "provider_down": FailureMessage(
        "{provider} has an outage or an internal error.", "Try again later, or choose another model.", again=True
    ),
    "unreachable": FailureMessage(
        "{provider} could not be reached.",
        "Check clew's network connection, then try again.",
        again=True,
    ),
    "broken_off": FailureMessage(
        "The response from {provider} was cut off.", "The part that arrived is saved; continue from there.", again=True
    ),
    "too_large": FailureMessage(
        "The request is too large for the model.",
        "Compact the conversation, prune its tool outputs, send less, choose a model with a larger context window, "
        "branch from a later message, or start a new session.",
    ),
    "no_model": FailureMessage("{provider} has no model with that name.", "Choose another model."),
    "request_refused": FailureMessage(
        "{provider} rejected the request.", "Change the request or choose another model; the details say why."
    ),
    "not_installed": FailureMessage(
        "The package for {provider} is not installed.",
        "Install the clew extra named in the details, then restart clew.",
    ),
    "unknown": FailureMessage("The model could not answer.", "Try again, or choose another model.", again=True),
    # Codes.
    "model_failed": FailureMessage("The model could not answer.", "Try again, or choose another model.", again=True),
    "context_too_large": FailureMessage(
        "The conversation does not fit the model’s context window.",
        "Compact the conversation, prune its tool outputs, send less, choose a model with a larger context window, "
        "branch from a later message, or start a new session.",
    ),
    "compaction_failed": FailureMessage(
        "The earlier turns could not be summarised.", "Try again, or choose another model.", again=True
    ),
    "interrupted": FailureMessage(
        "Interrupted: the server stopped during this response.",
        "The text so far is saved; continue from there.",
        again=True,
    ),
    "storage_full": FailureMessage(
        "The disk that holds the sessions is full.", "Free some disk space, then try again.", again=True
    ),
    "store_unavailable": FailureMessage(
        "The session store cannot be reached.", "Check that it is available, then try again.", again=True
    ),
    "store_gone": FailureMessage("The session store is gone.", "Restore it, then restart the server."),
    "store_busy": FailureMessage("Another program is using the session store.", "Try again in a moment.", again=True),
    "replica_away": FailureMessage(
        "This server is not accepting work right now.", "Try again in a moment.", again=True
    ),
    "internal_error": FailureMessage(
        "Something went wrong in the server.", "Try again; if it keeps failing, see the server’s log.", again=True
    ),
}


def failure_message(error: Mapping[str, Any]) -> FailureMessage | None:
    """Return the message for a stored error or a problem, with provider and key filled in; None if it has no row."""
    found = FAILURES.get(str(error.get("cause"))) or FAILURES.get(str(error.get("code")))
    if found is None:
        return None
    values = {"{provider}": error.get("provider_id") or "the provider", "{key}": error.get("key_name") or "its key"}
    texts = [found.happened, found.next]
    for name, value in values.items():
        texts = [text.replace(name, str(value)) for text in texts]
    # A provider id keeps its spelling, even at the start of a sentence.
    texts = [f"T{text[1:]}" if text.startswith("the provider") else text for text in texts]
    return FailureMessage(texts[0], texts[1], found.again)
