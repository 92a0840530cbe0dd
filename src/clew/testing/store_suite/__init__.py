"""The store suite: tests that every store must pass. A test file of your own store imports all of it and defines a
fixture that opens a store::

    import pytest
    from clew.testing.store_suite import *

    @pytest.fixture
    async def store(clock, mint, tmp_path):
        store = await open_mine(tmp_path, clock=clock, mint=mint)
        yield store
        await store.close()

It needs pytest with anyio's plugin: ``anyio_mode = "auto"``, and ``rule`` among the ``markers``, with which each test
names the rule it proves.
"""

from __future__ import annotations

import pytest

# For detailed messages of failed assertions. It has no effect after the modules are imported.
_PARTS = ("messages", "owners", "pages", "replicas", "sessions", "snapshots", "spend", "streams", "triggers", "units")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _PARTS))

from clew.testing.store_suite.fixtures import *
from clew.testing.store_suite.messages import *
from clew.testing.store_suite.owners import *
from clew.testing.store_suite.pages import *
from clew.testing.store_suite.replicas import *
from clew.testing.store_suite.sessions import *
from clew.testing.store_suite.snapshots import *
from clew.testing.store_suite.spend import *
from clew.testing.store_suite.streams import *
from clew.testing.store_suite.triggers import *
from clew.testing.store_suite.units import *
