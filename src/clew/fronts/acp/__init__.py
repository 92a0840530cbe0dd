"""clew as an agent of the Agent Client Protocol: editors talk with it over stdin and stdout."""

from clew.fronts.acp.editor_tools import editor_tools
from clew.fronts.acp.serve import Editor, serve
from clew.fronts.acp.stdio import own_stdio

__all__ = ["Editor", "editor_tools", "own_stdio", "serve"]
