"""Sessions as files: export for people and other programs, and import. Pure, without a store."""

from typing import Literal

__all__ = ["BulkFormat", "ExportFormat"]

ExportFormat = Literal[
    "json",
    "jsonl",
    "md",
    "html",
    "ai-sdk",
    "openai",
    "claude-code",
    "pi",
    "canonical-json",
    "canonical-jsonl",
    "csv",
    "atif",
]
"""The formats of an export of one session."""
BulkFormat = Literal["canonical-jsonl", "csv", "parquet"]
"""The formats of an export of many sessions."""
