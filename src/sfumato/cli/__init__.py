# SPDX-License-Identifier: Apache-2.0
"""The command line: thin, it calls the same functions as Python does. One file a command.

main.py       the commands by name, errors as messages and exit codes
NAME_command.py                                 a command: its options, and its work
spec.py       the spec file                     options.py    options that several commands share
comparison.py what ``compare`` computes
output.py     tables, JSON, progress bars, and files that appear whole or not at all
cli_limits.py sizes, each with its reason

The commands ``serve``, ``token`` and ``audit`` are registered by their packages, as entry points
of the group ``sfumato.commands``. A command's module imports heavy libraries in its functions, so
that ``--help`` answers at once.
"""
