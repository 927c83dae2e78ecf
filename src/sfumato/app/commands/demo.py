# SPDX-License-Identifier: Apache-2.0
"""``sfumato demo``: the shipped Adult table, released in under a minute.

The table is public (UCI Adult), so the demo needs no ledger; yours does.
"""

from __future__ import annotations

from pathlib import Path

from sfumato.app.files import check_folder
from sfumato.app.output import Output
from sfumato.app.publish import publish, published_document, published_facts
from sfumato.app.shipped import shipped_domain, shipped_table
from sfumato.app.show import heading
from sfumato.errors import BudgetError

__all__ = [
    "demo",
]


_TABLE = "demo:adult"
_LEVEL = 0.95


def demo(out: Path, epsilon: str, delta: str, output: Output) -> None:
    """All 2-way marginals and the age distribution by sex of Adult.

    Privacy: that of ``Plan.release``.
    """
    import sfumato as sf

    check_folder(out)
    budget = sf.Budget(epsilon=epsilon, delta=delta)
    if not budget.delta:
        raise BudgetError(f"delta must lie in (0, 1), got {delta}; usual values are like 1e-9")
    domain = sf.Domain.from_toml(shipped_domain(_TABLE))
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])
    with output.bars() as bars:
        plan = sf.plan(work, budget, progress=bars.phase("planning"))
        result = plan.release(shipped_table(_TABLE), progress=bars.of_release())
        with bars.step("writing"):
            files = publish(result, out, _LEVEL, None, None)
    output.result(
        published_document(result, files, None, is_stored=False),
        heading(f"Released {len(work):,} private answers about the Adult census table"),
        published_facts(result, files, None, is_stored=False),
        "",
        f"Open the report:  {files['report'].absolute()}",
    )
