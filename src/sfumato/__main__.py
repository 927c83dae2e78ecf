# SPDX-License-Identifier: Apache-2.0
"""``python -m sfumato``: the command line, where the command itself is not on the path."""

from __future__ import annotations

from sfumato.cli.main import main

if __name__ == "__main__":
    main()
