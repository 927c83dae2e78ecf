# SPDX-License-Identifier: Apache-2.0
"""What the package does, frozen: plans, keys, releases, commands, routes, and files on disk.

``data/`` holds what was made when the golden files were last written; `test_golden.py` makes it
again and compares. A change that is meant to change no behaviour must leave all of it as it is.

``python -m tests.golden --write`` renews all of it, ``--write plans help`` some sections. That is
allowed only for a change that is meant to change what people meet, says so in its commit, and
shows the difference of these files in the same commit; or where another version of a dependency
writes the same thing in another way. Keys of requests (``digest``, ``key``, ``request``) are those
of answers in people's ledgers: renewing them means that stored answers are no longer found.

``old/`` is never renewed. Files of later versions get a folder beside it (`old.py`).
"""
