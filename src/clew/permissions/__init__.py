"""Permissions: rules and targets in, a decision with its reasons out. No I/O: what must be looked up is handed in.

Which module answers which question, in the order a call goes through them:

``rules``           what may a rule from outside look like; what every agent may do, and who stays out of clew's places
``evaluate``        what is decided about a call, and which rule of which scope decides about each thing it would touch
``modes``           what does a session's mode add to its rules
``match``           what are those things, and does a rule match one of them: yes, no, or perhaps (``shell.tristate``)
``globs``           does a pattern match a text; ``paths`` a path, ``hosts`` a host
``file_system``     what may be known of the disk meanwhile: the workspace, where links lead, second names of files

of a shell line (``shell/``)

``tokens``          what are its words and operators, by bash's own rules
``parse``           which simple commands and redirects is it made of; a grammar is asked too, and both must agree
``commands``        what does a rule see of each command, and how far may one cover it
``builtins``        which builtins of bash are there, and which arguments do they evaluate
``wrappers``        which other commands does it run (``sudo``, ``xargs``, ``bash -c``)
``options``         what do its arguments make it do, by the tables of ``programs``
``command_paths``   to which paths may its words lead, for the pinned rules that close a place

and of the decision

``explain``         how is it told to people
``approval_rules``  which rules does a person's answer to it store
"""
