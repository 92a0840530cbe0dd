"""Fronts: what connects an engine to the outside. They do not see one another; what they share lies below them.

Which part answers which question:

``operations``  what can be asked from outside, with which arguments, and what is answered: the one table
``http``        how that is asked over HTTP, streams and the server included
``cli``         the ``clew`` command: a module for each group of commands, ``chat`` for conversations,
                ``remote`` for the engine of a running server
``web``         the files of the page, as ``http`` hands them out
``token``       which secret lets somebody in
``samples``     which sessions ``clew demo`` and the page make to look at
"""
