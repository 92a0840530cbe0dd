"""Fronts connect an engine to the outside. They do not import one another; what they share is in the layers below.

``operations``  the table of operations: arguments, routes and answers
``http``        the HTTP API, its streams and the server
``cli``         the ``clew`` command: one module per group of commands, ``chat`` for conversations
``remote``      the engine of a running server, and the clients
``web``         the files of the web page, which ``http`` serves
``token``       the server's secret token
``samples``     the sample sessions of ``clew demo`` and the page
"""
