# SPDX-License-Identifier: Apache-2.0
"""Records that the steward declares public, counted by the rules of the domain.

They are read like any table, by the vault, but nothing about them is secret: the counts come out
exact (`vault.count.public_cells`). Whether they are public is the steward's word; nothing can check
it, but for one thing: the guarded table itself is not (`vault.identity.check_apart`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.adaptive_costs import asked_domain
from sfumato.refine.shrink import PublicRecords
from sfumato.run.run_limits import LIMITS
from sfumato.text import listing
from sfumato.types import Array
from sfumato.vault.count import public_cells
from sfumato.vault.identity import check_apart
from sfumato.vault.tables import open_table
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from sfumato.release.release import Release

__all__ = ["check_public", "public_records"]


def check_public(public: object, guarded: object) -> None:
    """Refuse public records that are read from the guarded table; an earlier release is not.

    Args:
        public: the source that is declared public, an earlier release, or None.
        guarded: the source that is protected, or None where there is none.

    Raises:
        TableError: if both read some file, table or object in memory.
    """
    from sfumato.release.release import Release

    if not isinstance(public, Release):
        check_apart(public, guarded)


def public_records(source: object, workload: Workload) -> PublicRecords:
    """The public records over the asked attributes: of a table, a dataframe or an earlier release.

    Privacy: none; these records are public by declaration, or were released before.
    """
    from sfumato.release.release import Release

    domain = asked_domain(workload)
    cells = domain.cells(domain.names)
    if cells > LIMITS.public_cells:
        raise TooLarge(
            f"the {len(domain)} attributes asked about have {cells:,} cells together, public "
            f"records are counted in at most {LIMITS.public_cells:,}; ask about fewer, or leave "
            "public out"
        )
    if isinstance(source, Release):
        table = _released(source, workload)
        codes, counts = np.argwhere(table > 0), table[table > 0]
    else:
        rows = open_table(source)
        codes, counts = public_cells(rows, workload.domain, domain.names, with_values=True)
    if not counts.size:
        raise WorkloadError("there is no public record that the domain keeps; leave public out")
    return PublicRecords(domain.names, codes, counts)


def _released(source: Release, workload: Workload) -> Array:
    """The table behind an earlier release; cells that it does not tell apart share their class."""
    from sfumato.release.estimates import cell_table

    names = asked_domain(workload).names
    refined = source.estimates.refined
    if refined is None:
        raise WorkloadError(
            "the earlier release has no answers that agree with each other; give a table"
        )
    missing = [n for n in names if n not in refined.attributes]
    if missing or workload.domain != source.workload.domain:
        raise WorkloadError(
            "the earlier release must be on the same domain and know all attributes that are asked "
            f"about now{f'; it lacks {listing(missing)}' if missing else ''}"
        )
    return cell_table(refined, workload.domain, names)
