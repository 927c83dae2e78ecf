# SPDX-License-Identifier: Apache-2.0
"""``sfumato demo``: the shipped Adult table, released in under a minute; and that table by name.

``demo:adult`` names the table and its domain. UCI Adult (census income): B. Becker, R. Kohavi,
1996, UCI Machine Learning Repository, CC BY 4.0; 48,842 records of the 1994 census with their
labels. The domain file beside it says which values a record may hold, from the published code book.
The table is public, so the demo needs no ledger; yours does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from sfumato.cli.options import Json, Quiet, command_app, examples
from sfumato.errors import BudgetError, SchemaError
from sfumato.text import did_you_mean, either

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain

__all__ = [
    "MARK",
    "Example",
    "app",
    "demo",
    "example",
    "is_shipped",
    "shipped_domain",
    "shipped_table",
]


MARK: Final = "demo:"
_NAMES: Final = ("adult",)
_LEVEL: Final = 0.95

app = command_app()


class Example(NamedTuple):
    """A table that comes with the package: a Parquet file, and which values a record may hold."""

    table: Path
    domain: Domain


def example(name: str = "adult") -> Example:
    """A table to try things on: UCI Adult, 48,842 public records of the 1994 census.

    Args:
        name: The name of the table; there is ``"adult"``.

    Returns:
        The path of its Parquet file, and its domain.

    Raises:
        SchemaError: If there is no such table.

    >>> table, domain = example()
    >>> table.name, domain["sex"].size
    ('adult.parquet', 2)
    """
    from sfumato.domain.domain import Domain

    return Example(shipped_table(MARK + name), Domain.from_toml(shipped_domain(MARK + name)))


def is_shipped(name: str) -> bool:
    """Whether a source or a domain is named as one that comes with the package."""
    return name.startswith(MARK)


def shipped_table(name: str) -> Path:
    """The Parquet file of a shipped table.

    >>> shipped_table("demo:adult").name
    'adult.parquet'
    """
    return _file(name, ".parquet")


def shipped_domain(name: str) -> Path:
    """The TOML file with the domain of a shipped table.

    >>> shipped_domain("demo:adult").name
    'adult.toml'
    """
    return _file(name, ".toml")


def _file(name: str, ending: str) -> Path:
    stem = name.removeprefix(MARK)
    if stem not in _NAMES:
        allowed = [MARK + each for each in _NAMES]
        raise SchemaError(
            f"there is no shipped table {name!r}; allowed is {either(allowed)}"
            f"{did_you_mean(name, allowed)}"
        )
    return Path(__file__).parent.parent / "data" / (stem + ending)


@app.command(
    epilog=examples("sfumato demo", "sfumato demo --epsilon 0.1 --out /tmp/small-budget"),
)
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
