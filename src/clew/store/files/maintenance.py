"""Maintenance of a folder of sessions: its damage, except accepted losses, and copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

from msgspec.structs import replace

from clew.errors import InvalidInput
from clew.store.base import Damage
from clew.store.disk import translated
from clew.store.files import folder
from clew.store.files.codec import Codec, Loaded, format_note
from clew.store.files.session_value import SessionValue
from clew.store.files.shared import SHARED, SharedFiles

__all__ = ["copy_folder", "verify_files", "with_loss_ids"]


def with_loss_ids(loaded: Loaded) -> tuple[Damage, ...]:
    """Return the damage of a session, each loss with the id by which it can be accepted."""
    if loaded.memo.damaged:
        return loaded.damages  # it cannot be read at all: it has to be restored or deleted
    return tuple(
        replace(one, id=one.id or f"loss-{crc32(f'{one.session_id} {one.what}'.encode()):08x}")
        for one in loaded.damages
    )


def verify_files(path: Path, codec: Codec, rows_of: Callable[[str, str], SessionValue | None]) -> Sequence[Damage]:
    """Return all damage and missing files, and sessions whose rows in the cache differ from their files.

    ``rows_of`` returns the rows of a session, if they are from files with this signature.
    """
    found: list[Damage] = []
    shared = SharedFiles(path)
    with translated(path):
        blobs = {sha: shared.read_blob(sha) is not None for sha in shared.load("blobs")}
        tables = {name: shared.load(name) for name in SHARED.keys() - {"blobs"}}
        for session_id in codec.on_disk():
            signature = repr(codec.signature(session_id))
            loaded = codec.load(session_id)
            if loaded is None:
                continue  # removed since it was listed
            rows = rows_of(session_id, signature)
            if rows is not None and not loaded.damages and not _is_same(loaded.value, rows):
                what = "the cache does not hold what its files say; remove clew/cache.db, which is made again"
                found.append(Damage(what, session_id))
            found += (one for one in with_loss_ids(loaded) if one.id not in tables["accepted"])
            missing = [sha for sha in loaded.value.blobs if sha not in blobs]
            found += [Damage("a file that it names is missing", session_id, sha) for sha in missing]
    return (*found, *(Damage(what) for what in shared.unread))


def _is_same(value: SessionValue, rows: SessionValue) -> bool:
    """Return whether the rows of a session are what its files say. Only the cache seals other programs' messages, and
    only there a stream has a mark from its beginning."""
    seals = {id_: seal for id_, seal in rows.seals.items() if id_ in value.seals}
    row = {"session": replace(value.row["session"], head_turn_id=None)}  # the state has the head
    return replace(rows, seals=seals, marks={}) == replace(value, row=row, marks={})


def copy_folder(codec: Codec, shared: SharedFiles, target: Path) -> None:
    """Copy the store to ``target``, which must not exist yet."""
    if target.exists():
        raise InvalidInput(f"{target} is already there; name a new folder")
    making = target.with_name(f"{target.name}.making")
    with translated(target):
        try:
            shutil.rmtree(making, ignore_errors=True)
            folder.make_folder(making / "clew")
            codec.copy(making)
            shared.copy(making)
            folder.write_whole(making / "clew" / "format.json", format_note(codec.kind), sync=True)
            making.rename(target)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
