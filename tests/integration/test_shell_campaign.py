"""A share of the campaign of shell lines that mean harm: what the rules allow has no effect nobody meant."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.rig import shell
from tests.rig.budget import Budget


@pytest.mark.rule("PM-5", "PM-8", "PM-9")
@pytest.mark.skipif(not all(map(shutil.which, ("bash", "git", "make", "tar"))), reason="the lines need these programs")
def test_no_line_that_is_allowed_has_an_effect_nobody_meant(record_property: Callable[[str, object], None]) -> None:
    outcome = shell.run(Budget(60))
    assert outcome.broken == []
    # Otherwise the lines would prove nothing.
    assert outcome.counts["effects"] > 20
    record_property("figure", shell.figure(outcome.counts))
