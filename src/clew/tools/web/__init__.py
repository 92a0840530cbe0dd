"""Fetching pages: which addresses, which URLs, the wire, the redirects, and text out of HTML."""
