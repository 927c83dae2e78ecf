# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.golden SECTION`` prints a section, ``--write [SECTION ...]`` renews."""

from __future__ import annotations

import json
import sys

from tests.golden import sections, stored


def main(arguments: list[str]) -> None:
    """Print one section, or write some (all, if none is named)."""
    if arguments[:1] != ["--write"]:
        [name] = arguments
        content = getattr(sections, f"of_{name}")()
        print(json.dumps(stored.plain(content), ensure_ascii=False))
        return
    for name in arguments[1:] or stored.SECTIONS:
        stored.write(name, stored.made(name))
        print(f"wrote {name}")
    stored.write("environment", stored.environment())


if __name__ == "__main__":
    main(sys.argv[1:])
