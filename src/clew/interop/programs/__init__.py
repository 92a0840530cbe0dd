"""Sessions of other programs: import from their files, and export in their formats."""
