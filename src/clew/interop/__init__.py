"""Sessions as files: to be imported elsewhere, or to be read by people. Pure; knows no store."""
