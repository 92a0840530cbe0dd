"""The calls of the operating system that differ between POSIX and Windows. No other module imports a POSIX-only one at
its top, unless only Linux runs it.

On Windows a call has a substitute with the same effect, or its feature is off: where a user asks for it, the error
``not_supported`` or a line says so. ``docs/platforms.md`` lists what is proven where.
"""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["NO_FILE_TOOLS", "NO_PROGRAMS", "WINDOWS"]

WINDOWS: Final = sys.platform == "win32"
NO_FILE_TOOLS: Final = "files of a workspace are off on Windows: the rules for paths are proven on POSIX systems only"
NO_PROGRAMS: Final = "programs of tools are off on Windows: ending all their processes needs a POSIX system"
