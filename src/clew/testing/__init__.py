"""What tests of clew, and of programs built on it, can use: builders, fakes and generators."""
