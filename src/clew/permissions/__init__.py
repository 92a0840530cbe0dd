"""Permissions: decisions from rules and targets, with their reasons. No I/O; lookups are passed in as functions.

The modules, in the order a call goes through them:

``rules``           parsing of rules from outside; the rules of every agent and mode, and those that close clew's files
``evaluate``        the decision about a call, from the rule that decides about each of its subjects
``match``           the subjects of a call, and whether a rule matches one: yes, no, or maybe
``capabilities``    what a target needs, and what a command of a shell line may need
``globs``           patterns for text; ``paths`` for paths with lookups on the disk, ``hosts`` for hosts

for a shell line (``shell/``)

``tokens``          its words and operators, by bash's own rules
``parse``           its simple commands and redirects; a grammar parses it, too, and both must agree
``commands``        the text of each command for rules, which rules may cover it, and what builtins evaluate
``wrappers``        the other commands it runs (``sudo``, ``xargs``, ``bash -c``)
``options``         the effects of its arguments, by the tables of ``programs``
``command_paths``   the paths its words may lead to, for the pinned rules that close folders

and for the decision

``explain``         its explanation for people
``approval_rules``  the rules that a person's approval may store
"""
