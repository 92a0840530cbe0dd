"""MCP servers as givers of tools."""
