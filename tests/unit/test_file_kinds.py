"""What a file is by its bytes: one corpus for the engine and for the page, which refuses files before they are sent."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from clew.session.prompt.file_content import content_of

CORPUS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "corpora" / "file_kinds.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", CORPUS, ids=[case["name"] for case in CORPUS])
def test_the_engine_takes_a_file_for_what_the_corpus_says(case: dict[str, Any]) -> None:
    """The page's own test reads the same file."""
    content = content_of(base64.b64decode(case["base64"]), case["claimed"])
    told = (content.media_type, content.text is not None, content.whole)
    assert told == (case["media_type"], case["text"], case["whole"])
