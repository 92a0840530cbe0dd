"""Failures in a person's words: every row of the table, and the cause of a failure through HTTP."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from clew.fronts.failure_messages import FAILURES, failure_message
from clew.providers.base import FailureCause, ProviderFailure
from clew.testing.scripted import Piece, fail
from tests.integration.http_client import served

STATUSES = {401: "key_refused", 402: "no_credit", 403: "key_refused", 404: "no_model", 400: "request_refused"}


def test_every_cause_has_words_that_say_what_happened_and_what_to_do() -> None:
    """Sentences, with the provider and its key where they are known; nothing of what a program said."""
    assert set(get_args(FailureCause)) <= set(FAILURES)
    for name in FAILURES:
        said = failure_message({"cause": name, "message": "Traceback", "provider_id": "acme", "key_name": "ACME_KEY"})
        assert said is not None
        for text in (said.happened, said.next):
            assert text.endswith(".")
            assert not {"{", "}", "Traceback"} & {*text, *text.split()}
    assert failure_message({"cause": "no_key", "provider_id": "acme", "key_name": "ACME_KEY"}) == FAILURES[
        "no_key"
    ].__class__(
        "There is no key for acme.", "Set ACME_KEY in clew's environment and restart it, or choose another model."
    )
    assert failure_message({"code": "invalid_input", "message": "the prompt is empty"}) is None


@pytest.mark.rule("RN-3")
@pytest.mark.parametrize(("status", "cause"), STATUSES.items())
async def test_the_cause_of_a_failure_is_kept_with_the_turn(status: int, cause: str) -> None:
    """In the turn, in the messages, and in the status: fronts read no words."""
    async with served(fail(status, "raw words of a provider")) as client:
        session_id = await client.session()
        await client.prompt(session_id, "hi")
        await client.idle(session_id)
        error = (await client.messages(session_id))[-1]["metadata"]["turn"]["error"]
        assert error == {"code": "model_failed", "message": "raw words of a provider", "cause": cause}
        assert (await client.get(f"/api/sessions/{session_id}/status")).json()["problem"]["cause"] == cause


async def test_a_model_without_a_key_is_refused_with_the_name_of_the_key() -> None:
    """Before anything is stored, as a problem that has the words' own parts."""

    def nobody(_: Any) -> Any:
        yield ProviderFailure("x", kind="auth", cause="no_key", provider_id="acme", key_name="ACME_KEY")

    async with served(Piece(nobody)) as client:
        session_id = await client.session()
        await client.prompt(session_id, "hi")
        await client.idle(session_id)
        error = (await client.messages(session_id))[-1]["metadata"]["turn"]["error"]
        assert {key: error[key] for key in ("cause", "provider_id", "key_name")} == {
            "cause": "no_key",
            "provider_id": "acme",
            "key_name": "ACME_KEY",
        }
