"""The system prompt: sections in a fixed order, and the digest that names the whole."""
