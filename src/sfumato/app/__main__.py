# SPDX-License-Identifier: Apache-2.0
"""``python -m sfumato.app``: the command line."""

from __future__ import annotations

from sfumato.app.cli import main

if __name__ == "__main__":
    main()
