"""The system prompt: sections in a fixed order, and the digest of the whole."""
