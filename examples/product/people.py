"""Who may log in. A name is also the owner of that person's sessions."""

from __future__ import annotations

import hashlib
import secrets


class People:
    """Passwords as salted hashes, and who is logged in, each by a random cookie. In memory: a product has a table."""

    def __init__(self, passwords: dict[str, str]) -> None:
        self._hashes = {name: self._hash(password, secrets.token_bytes(16)) for name, password in passwords.items()}
        self._logged_in: dict[str, str] = {}

    def log_in(self, name: str, password: str) -> str | None:
        """A cookie for whoever knows the password."""
        known = self._hashes.get(name) or self._hash("", bytes(16))
        if not secrets.compare_digest(self._hash(password, known[:16]), known) or name not in self._hashes:
            return None
        cookie = secrets.token_urlsafe(32)
        self._logged_in[cookie] = name
        return cookie

    def log_out(self, cookie: str) -> None:
        self._logged_in.pop(cookie, None)

    def find(self, cookie: str | None) -> str | None:
        """Whose cookie this is."""
        return self._logged_in.get(cookie) if cookie is not None else None

    @staticmethod
    def _hash(password: str, salt: bytes) -> bytes:
        return salt + hashlib.scrypt(password.encode(), salt=salt, n=2**12, r=8, p=1)
