"""Every store of clew's passes the suite that ships for those of others."""

from __future__ import annotations

from clew.testing.store_suite import *
