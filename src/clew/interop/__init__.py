"""Sessions as documents: files that carry one session elsewhere, or show it to people. Pure; knows no store."""
