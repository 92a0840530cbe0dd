"""Models without a key or network, for trying out clew and for tests."""

from clew.providers.demo.provider import DEMO, DEMO_MODELS, DEMO_VARIANTS, DemoProvider

__all__ = ["DEMO", "DEMO_MODELS", "DEMO_VARIANTS", "DemoProvider"]
