# SPDX-License-Identifier: Apache-2.0
"""``make bench``: every benchmark once, peers and sfumato side by side, and one report of them.

python -m bench                        all sections, and bench/results/report.md
python -m bench --quick                the main ones with fewer rows, under five minutes
python -m bench --all                  with the long rows
python -m bench factorization          one section, printed
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from bench import report
from bench.tell import Effort

SECTIONS = {
    "noise": "draws of exact noise per second, beside OpenDP and diffprivlib",
    "counting": "all 91 two-way marginals of Adult, beside bare group-bys in DuckDB",
    "factorization": "error, certificate and CPU seconds, beside every system of the peer file",
    "unions": "certificates of 70 random unions of products",
    "projection": "answers made possible, and adaptive releases, beside scipy, cvxpy and mbi",
    "cells": "how long projections of listed cells take, beside scipy and cvxpy",
    "bodies": "projections onto relaxations, and the gaps they prove of rows",
    "metric": "projections in the metric of the objective and of the noise",
    "intervals": "how often intervals hold the truth",
    "everyday": "five everyday tasks, lines and errors, beside OpenDP",
    "means": "means of continuous columns, beside OpenDP's clamped mean",
    "zipf_keys": "unknown words that many people share, beside OpenDP's noisy threshold",
    "unit_bounds": "a discovered bound on the rows of a person, beside the best bound",
    "sparse": "how far off the discoveries of a sparse vector may be, beside the textbook",
    "online": "questions one at a time, beside noise on every answer",
    "analysts": "how often intervals of sessions hold, for analysts who follow what they see",
    "shrinkage": "projected answers drawn towards guesses, beside the projection itself",
    "boosting": "the largest error of boosting, beside plans that nobody boosted",
    "streams": "running totals and windows, beside trees and Toeplitz strategies",
    "ledger": "debits, free answers and refusals per second, on SQLite and PostgreSQL",
    "server": "requests per second and latencies of `sfumato serve` at 64 clients",
    "page": "from the move of a slider to the drawn chart, in Chromium",
    "limits": "error across every limit of the planner, and where it jumps",
    "sizes": "time and memory to refuse giant inputs",
    "engines": "all pairs of attributes on PostgreSQL and Spark, beside their own SQL",
    "scale": "growth with records, attributes and cells, beside bare DuckDB",
}
QUICK = (
    "noise", "counting", "factorization", "limits", "projection", "sparse", "online", "streams",
    "scale",
)  # fmt: skip
WITH_EFFORT = (
    "noise", "factorization", "unions", "limits", "projection", "cells", "online", "analysts",
    "streams", "scale", "engines",
)  # fmt: skip


def main() -> None:
    """Print the sections that are asked for; all of them make a report."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="sfumato and its peers")
    parser.add_argument("sections", nargs="*", help=f"any of {', '.join(SECTIONS)}; none: a report")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="fewer rows, under five minutes")
    length.add_argument("--all", action="store_true", help="long rows too")
    asked = parser.parse_args()
    unknown = [name for name in asked.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    effort: Effort = "quick" if asked.quick else "all" if asked.all else "usual"
    if not asked.sections:
        sys.exit(_report(effort))
    for name in asked.sections:
        section = import_module(f"bench.{name}")
        section.main(effort) if name in WITH_EFFORT else section.main()


def _report(effort: Effort) -> int:
    """All sections one after the other; 1 if any failed."""
    done, begun = [], report.conditions()
    for name in QUICK if effort == "quick" else SECTIONS:
        print(f"\n## {name}: {SECTIONS[name]}", flush=True)
        done.append(report.run_section(name, SECTIONS[name], effort))
        print(report.written(done, effort, begun))  # after each, so that nothing is lost
    return int(not all(section.is_done for section in done))


if __name__ == "__main__":
    main()
