"""clew as an agent of the Agent Client Protocol: editors talk with it over stdin and stdout."""

from clew.fronts.acp.editor_tools import editor_tools
from clew.fronts.acp.rpc import own_stdio
from clew.fronts.acp.serve import Editor, serve

__all__ = ["Editor", "editor_tools", "own_stdio", "serve"]
