# SPDX-License-Identifier: Apache-2.0
"""``make bench``: every benchmark once, peers and sfumato side by side.

python -m bench                        all sections
python -m bench factorization          one of them
python -m bench projection --all       with its long rows
"""

from __future__ import annotations

import argparse

from bench import (
    bodies,
    boosting,
    cells,
    counting,
    factorization,
    intervals,
    ledger,
    metric,
    noise,
    online,
    projection,
    server,
    shrinkage,
    sparse,
    streams,
)

SECTIONS = {
    "noise": noise,
    "counting": counting,
    "factorization": factorization,
    "projection": projection,
    "cells": cells,
    "bodies": bodies,
    "metric": metric,
    "intervals": intervals,
    "sparse": sparse,
    "online": online,
    "shrinkage": shrinkage,
    "boosting": boosting,
    "streams": streams,
    "ledger": ledger,
    "server": server,
}


def main() -> None:
    """Run and print the sections that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="sfumato and its peers")
    parser.add_argument("sections", nargs="*", help=f"any of {', '.join(SECTIONS)}; none: all")
    parser.add_argument("--all", action="store_true", help="long rows too")
    asked = parser.parse_args()
    unknown = [name for name in asked.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    for name in asked.sections or SECTIONS:
        if name in ("factorization", "projection", "cells", "online"):
            SECTIONS[name].main(asked.all)
        else:
            SECTIONS[name].main()


if __name__ == "__main__":
    main()
