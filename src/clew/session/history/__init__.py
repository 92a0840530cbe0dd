"""Operations on a session's history: rewind, branch, export and import, convert, views, check and repair."""
