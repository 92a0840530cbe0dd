"""Agents as manifests: a prompt, tools, rules, a model and limits."""
