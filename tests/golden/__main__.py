# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.golden SECTION ...`` prints sections, ``--write [SECTION ...]`` renews."""

from __future__ import annotations

import json
import sys

from tests.golden import sections, stored


def main(arguments: list[str]) -> None:
    """Print some sections, or write some (all, if none is named)."""
    if arguments[:1] != ["--write"]:
        contents = {n: stored.plain(getattr(sections, f"of_{n}")()) for n in arguments}
        contents["environment"] = stored.environment()
        print(json.dumps(contents, ensure_ascii=False))
        return
    for name, content in stored.made(*(arguments[1:] or stored.SECTIONS)).items():
        stored.write(name, content)
        print(f"wrote {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
