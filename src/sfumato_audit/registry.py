# SPDX-License-Identifier: Apache-2.0
"""The subjects of the audit, the names of all that has to be audited, and those without a subject.

``required`` is read off the code: every mechanism and method by name, every kind of cost, and every
function of the vault, of the local model, of watches, of selections, of corrections and of adaptive
rounds whose docstring promises privacy. A new one without a subject that ``covers`` it fails a
test, and `sfumato audit`.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from types import FunctionType, ModuleType
from typing import Any, get_args

from sfumato.random import WordSource, system_words
from sfumato.types import Progress
from sfumato_audit.audit_limits import LIMITS
from sfumato_audit.examine import FAST, Effort, Finding, Subject, examine

__all__ = ["audit", "required", "sound_subjects", "subjects", "uncovered"]


ROOM = "sfumato.vault"
OUTSIDE = (  # modules that promise privacy outside of the vault
    "sfumato.study.local_factorization",
    "sfumato.study.local_model",
    "sfumato.run.choose",
    "sfumato.run.correct",
    "sfumato.run.discover",
    "sfumato.run.adaptive",
    "sfumato.run.textbook.choice_mechanisms",
    "sfumato.run.textbook.linear_mechanisms",
    "sfumato.run.textbook.local_responses",
    "sfumato.run.textbook.sparse_vectors",
    "sfumato.run.textbook.private_weights",
    "sfumato.run.watch",
)
# "Privacy: none" says that what is returned stays in the vault; post-processing touches no data.
PROMISE = re.compile(r"Privacy: (?!none|post-processing|public by)")


def sound_subjects() -> list[Subject[Any]]:
    """Everything that must keep its claim."""
    from sfumato_audit.subjects.chosen import chosen_subjects, mwem_subjects
    from sfumato_audit.subjects.discoveries import (
        bound_subjects,
        key_subjects,
        kind_subjects,
        range_subjects,
    )
    from sfumato_audit.subjects.measured import planned_subjects, value_subjects
    from sfumato_audit.subjects.online import (
        group_subjects,
        online_subjects,
        purchase_subjects,
        stream_subjects,
        whole_session_subjects,
    )
    from sfumato_audit.subjects.periods import period_subjects
    from sfumato_audit.subjects.sources import csv_subjects, source_subjects
    from sfumato_audit.subjects.sparse import session_subjects, sparse_subjects
    from sfumato_audit.subjects.textbook import local_subjects, textbook_subjects
    from sfumato_audit.subjects.units import unit_subjects

    return [
        *planned_subjects(),
        *unit_subjects(),
        *period_subjects(),
        *value_subjects(),
        *csv_subjects(),
        *source_subjects(),
        *stream_subjects(),
        *local_subjects(),
        *chosen_subjects(),
        *mwem_subjects(),
        *key_subjects(),
        *sparse_subjects(),
        *range_subjects(),
        *bound_subjects(),
        *kind_subjects(),
        *online_subjects(),
        *session_subjects(),
        *purchase_subjects(),
        *whole_session_subjects(),
        *group_subjects(),
        *textbook_subjects(),
    ]


def subjects() -> list[Subject[Any]]:
    """The sound ones, and those that are known to be wrong."""
    from sfumato_audit.broken import broken_subjects

    return [*sound_subjects(), *broken_subjects()]


def audit(
    chosen: list[Subject[Any]],
    effort: Effort = FAST,
    source: WordSource | None = None,
    progress: Progress | None = None,
    workers: int = 1,
) -> list[Finding]:
    """Examine all subjects: one after the other, or in so many processes if they are many.

    Processes have their own words from the operating system and find their subjects by name.
    """
    workers = min(workers, len(chosen) // LIMITS.subjects_per_worker)
    if workers > 1 and source is None:
        return _shared(chosen, effort, progress, workers)
    source = system_words() if source is None else source
    findings = []
    for i, subject in enumerate(chosen):
        if progress is not None:
            progress(i, len(chosen), subject.name)
        findings.append(examine(subject, source, effort))
    return findings


def _shared(
    chosen: list[Subject[Any]], effort: Effort, progress: Progress | None, workers: int
) -> list[Finding]:
    """The slowest first, so that no process is left with one of them at the end."""
    ordered = sorted(chosen, key=lambda s: -s.slowness)
    findings: dict[str, Finding] = {}
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting = [pool.submit(_examined, s.name, effort) for s in ordered]
        try:
            for i, done in enumerate(as_completed(waiting)):
                finding = done.result()
                findings[finding.name] = finding
                if progress is not None:
                    progress(i, len(chosen), finding.name)
        except BaseException:  # whoever interrupts does not wait for what has not begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [findings[s.name] for s in chosen]


def _examined(name: str, effort: Effort) -> Finding:
    return examine(_by_name()[name], system_words(), effort)


@cache
def _by_name() -> dict[str, Subject[Any]]:
    return {s.name: s for s in subjects()}


def required() -> frozenset[str]:
    """Names of everything that promises privacy."""
    from sfumato.planning.mechanisms import MECHANISMS
    from sfumato.planning.planner import BIASED
    from sfumato.planning.selection_plans import SelectionMechanism
    from sfumato.planning.stream_plans import STRATEGIES
    from sfumato.privacy.cost import Part
    from sfumato.privacy.selection import ChoiceNoise
    from sfumato.run.adaptive import Method

    names = [f"mechanism:{name}" for name in (*MECHANISMS, BIASED)]
    names += [f"method:{name}" for name in get_args(Method)]
    names += [f"stream:{name}" for name in STRATEGIES]
    names += [f"choice:{name}" for name in get_args(ChoiceNoise)]
    names += [f"selection:{name}" for name in get_args(SelectionMechanism)]
    names += [f"cost:{part.__name__}" for part in get_args(Part)]
    names.append("unit:rows")  # people with several rows, of which some are kept
    names.append("unit:groups")  # the same, in a few groups
    names.append("unit:features")  # people with several rows, of which one row is made
    names.append("ledger:periods")  # a table and a budget for each, and people in several
    return frozenset(names) | frozenset(_promising())


def uncovered(chosen: list[Subject[Any]]) -> frozenset[str]:
    """What is required and covered by no sound subject."""
    covered = {name for s in chosen if not s.is_broken for name in s.covers}
    kinds = {"epsilon": "cost:PurePart", "mu": "cost:GaussianPart"}
    covered |= {kinds[s.claim.kind] for s in chosen if not s.is_broken}
    return required() - covered


def _promising() -> Iterator[str]:
    """Functions, methods and classes whose docstring promises privacy."""
    inside = pkgutil.walk_packages(import_module(ROOM).__path__, f"{ROOM}.")
    for name in (*(module.name for module in inside), *OUTSIDE):
        yield from _of_module(import_module(name))


def _of_module(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, FunctionType) and _promises(value):
            yield f"{module.__name__}.{name}"
        if inspect.isclass(value):
            if _promises(value):
                yield f"{module.__name__}.{name}"
            for own, member in vars(value).items():
                method = getattr(member, "__func__", member)
                if isinstance(method, FunctionType) and _promises(method):
                    yield f"{module.__name__}.{name}.{own}"


def _promises(value: object) -> bool:
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    return PROMISE.search(text) is not None
