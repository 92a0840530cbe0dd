"""Many sessions streaming at once from one server, in small. ``make soak`` does the same in large."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig.server_load import Load, soak

pytestmark = pytest.mark.service


@pytest.mark.rule("SR-2")
async def test_a_hundred_sessions_stream_at_once_and_all_of_it_is_whole(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Half of the viewers leave and some come back: nobody misses a chunk, and every message is whole on disk."""
    outcome = await soak(Load(sessions=100, words=60), tmp_path)
    for name in ("streaming", "viewers", "word → next word (20 expected), ms", "server memory, MB"):
        record_property("figure", f"soak, 100 sessions: {name}: {outcome.measurements[name]}")
    assert outcome.problems == []
    assert "50 stayed" in str(outcome.measurements["viewers"])
