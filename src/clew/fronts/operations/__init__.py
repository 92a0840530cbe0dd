"""Operations: what an engine accepts from outside, with arguments and results. :mod:`.table` lists them all.

Importing the package imports nothing: a command that prints a session needs its shape, not the table.
"""
