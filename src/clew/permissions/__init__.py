"""Permissions: decisions from rules and targets, with their reasons. No I/O; lookups are passed in as functions.

The modules, in the order a call goes through them:

``rules``           parsing of rules from outside; the rules of every agent, and those that close clew's own files
``evaluate``        the decision about a call, from the rule that decides about each of its subjects
``modes``           the rules that a session's mode adds
``match``           the subjects of a call, and whether a rule matches one: yes, no, or maybe (``shell.tristate``)
``capabilities``    what a target needs, and what a command of a shell line may need
``globs``           patterns for text; ``paths`` for paths, ``hosts`` for hosts
``file_system``     lookups on the disk: the workspace, real paths, second names of files

for a shell line (``shell/``)

``tokens``          its words and operators, by bash's own rules
``parse``           its simple commands and redirects; a grammar parses it, too, and both must agree
``commands``        the text of each command for rules, and which rules may cover it
``builtins``        the builtins of bash, and the arguments they evaluate
``wrappers``        the other commands it runs (``sudo``, ``xargs``, ``bash -c``)
``options``         the effects of its arguments, by the tables of ``programs``
``command_paths``   the paths its words may lead to, for the pinned rules that close folders

and for the decision

``explain``         its explanation for people
``approval_rules``  the rules that a person's approval may store
"""
