"""Fetching pages: address policy, URLs, HTTP, redirects, and HTML to text."""
