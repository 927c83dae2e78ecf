# SPDX-License-Identifier: Apache-2.0
"""Sessions whose random words a test chooses."""

from __future__ import annotations

import sfumato as sf
from sfumato.random import WordSource
from sfumato.run.spine import Access
from sfumato.session.session import _start


def begin_session(
    table: object,
    domain: sf.Domain,
    budget: sf.Budget,
    random: WordSource,
    *,
    ledger: object = None,
    start: object = None,
    public: object = None,
    name: str | None = None,
    label: str = "",
    dummy: bool = False,
    take_over: bool = False,
    **chosen: object,
) -> sf.Session:
    """`sf.open_session` with a source of random words of one's own."""
    plan = sf.plan_session(domain, budget, **chosen)  # type: ignore[arg-type]
    begun = _start(start, public, table, domain)
    access = Access(table, ledger, name)  # type: ignore[arg-type]
    return plan.begin(access, random, begun, label, dummy=dummy, take_over=take_over)
