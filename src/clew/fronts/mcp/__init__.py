"""clew as an MCP server: other agents can search and read its sessions."""

from clew.fronts.mcp.recall import make_server

__all__ = ["make_server"]
