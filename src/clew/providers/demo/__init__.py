"""Models that need no key and no network: for trying clew out, and for tests."""

from clew.providers.demo.provider import DEMO, DEMO_MODELS, DEMO_VARIANTS, DemoProvider

__all__ = ["DEMO", "DEMO_MODELS", "DEMO_VARIANTS", "DemoProvider"]
