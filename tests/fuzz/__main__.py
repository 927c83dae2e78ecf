# SPDX-License-Identifier: Apache-2.0
"""Drive the readers with atheris, guided by coverage.

    python -m tests.fuzz schema --runs 100000

A crash leaves its input beside the corpus. The limits are those that a reader owes its callers: one
input takes less than a second and little memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["sfumato", "tomllib", "json", "zipfile"]):
    from tests.fuzz.readers import READERS, read, seeds


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    asked.add_argument("reader", choices=sorted(READERS))
    asked.add_argument("--runs", type=int, default=100_000)
    asked.add_argument("--seconds", type=int, default=600)
    given = asked.parse_args()
    corpus = Path(tempfile.mkdtemp(prefix=f"sfumato-fuzz-{given.reader}-"))
    for number, seed in enumerate(seeds(given.reader)):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = [f"-runs={given.runs}", f"-max_total_time={given.seconds}", "-max_len=8192"]
    limits += [
        "-timeout=5",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        f"-artifact_prefix={corpus}/",
    ]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], lambda data: read(given.reader, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
