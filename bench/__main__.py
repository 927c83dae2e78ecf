# SPDX-License-Identifier: Apache-2.0
"""``make bench``: every benchmark once, peers and sfumato side by side."""

from __future__ import annotations

from bench import counting, factorization, noise


def main() -> None:
    """Run and print all sections."""
    for section in (noise, counting, factorization):
        section.main()


if __name__ == "__main__":
    main()
