"""A turn: runs, the agent loop, the recorder, tool calls, approvals and continuation."""
