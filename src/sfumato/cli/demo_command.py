# SPDX-License-Identifier: Apache-2.0
"""``sfumato demo``: the shipped Adult table, released in under a minute.

The table is public, so the demo needs no ledger; yours does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from sfumato.cli.options import Json, Quiet, command_app, examples
from sfumato.domain.domain import example
from sfumato.errors import BudgetError

__all__ = ["app", "demo"]


_LEVEL: Final = 0.95

app = command_app()


@app.command(epilog=examples("sfumato demo", "sfumato demo --epsilon 0.1 --out /tmp/small-budget"))
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path(
        "sfumato-demo"
    ),
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="The budget: epsilon.")] = "1",
    delta: Annotated[str, typer.Option(metavar="NUMBER", help="The budget: delta.")] = "1e-9",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Release a shipped table: answers, charts and a report in a minute.

    All 2-way marginals and the age distribution by sex of the Adult census
    table, with differential privacy.
    """
    import sfumato as sf
    from sfumato.cli.output import Output, check_folder, heading
    from sfumato.cli.release_command import published

    output = Output(json, quiet)
    check_folder(out)
    budget = sf.Budget(epsilon=epsilon, delta=delta)
    if not budget.delta:
        raise BudgetError(f"delta must lie in (0, 1), got {delta}; usual values are like 1e-9")
    table, domain = example("adult")
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])
    with output.bars() as bars:
        plan = sf.plan(work, budget, progress=bars.phase("planning"))
        result = plan.release(table, progress=bars.of_release())
        with bars.step("writing"):
            files = result.save(out, level=_LEVEL)
    document, shown = published(plan, result, files, None)
    output.result(
        document,
        heading(f"Released {len(work):,} private answers about the Adult census table"),
        shown,
        "",
        f"Open the report:  {files['report'].absolute()}",
    )
