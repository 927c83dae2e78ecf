# SPDX-License-Identifier: Apache-2.0
"""``python -m sfumato``: the command line, where the command itself is not on the path."""

from sfumato.app.cli import main

main()
