"""clew as an MCP server: other agents may look sessions up."""

from clew.fronts.mcp.recall import make_server

__all__ = ["make_server"]
