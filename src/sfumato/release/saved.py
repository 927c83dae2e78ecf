# SPDX-License-Identifier: Apache-2.0
"""A saved release that is read again, from the ``release.zip`` beside its answers.

The file (``release/object_file.py``) holds what was asked, the strategy and its noise, the noisy
values that left the vault, and the cells behind answers that agree. Nothing in it was private
before it was published: the noisy values are what the guarantee is about, all else is public or
computed from them. The process that paid is left out, since it names a machine.

Whoever can write the file can write another one that is sound in itself: that it is what a ledger
paid for is known only with the ledger at hand.

Privacy: post-processing of what was released (Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zipfile import BadZipFile, ZipFile

import numpy as np

from sfumato.errors import LedgerError, SfumatoError
from sfumato.measurement import Measured, Transcript
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.release.answers import key_term, named_groups
from sfumato.release.estimates import Estimates
from sfumato.release.learned import LearnedEstimates
from sfumato.release.linear_estimates import LinearEstimates
from sfumato.release.object_file import FORMAT, OBJECTS, RECORD, ObjectReader, file_digest
from sfumato.release.provenance import CUT_SCHEMA, FIRST_SCHEMA, SCHEMA, facts_of
from sfumato.release.release import SAVED, Release
from sfumato.release.release_limits import LIMITS
from sfumato.text import shown
from sfumato.version import VERSION

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger

__all__ = ["check_paid", "read_release"]

T = TypeVar("T")


def read_release(path: str | PathLike[str], ledger: Ledger | str | Path | None = None) -> Release:
    """Return a saved release: answers, roll-ups, SQL, charts and all, as of the one that was saved.

    Reads no table and spends nothing. The files of the folder must be those that were saved with
    it, what was measured must give the published answers, and its noise must cost what the
    provenance record says. With a ledger it must also be what that ledger paid for and stored.

    Privacy: post-processing of what was released (Dwork, Roth 2014, Proposition 2.1).
    Neighbours: those of the release.

    Args:
        path: The folder that ``release.save`` wrote, or the ``release.zip`` of it.
        ledger: The ledger that paid for it, opened or its path, if it is at hand: without it, files
            that somebody made up consistently cannot be told from others.

    Returns:
        The release; ``release.entry`` is None, its debit is in the provenance.

    Raises:
        SfumatoError: There is no such file, it was changed, or another version wrote it.
        LedgerError: The ledger has no such debit, or stored other numbers.

    >>> import tempfile, pandas as pd, sfumato as sf
    >>> table = pd.DataFrame({"age": [3, 4, 4, 7] * 500})
    >>> work = sf.marginals(sf.Domain({"age": 10}), 1)
    >>> release = sf.plan(work, sf.Budget(epsilon=1)).release(table)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = release.save(folder)
    ...     again = sf.read_release(folder)
    >>> again.answers("age").equals(release.answers("age"))
    True
    """
    if not isinstance(path, str | PathLike):
        raise SfumatoError(
            f"read_release takes the folder of a saved release, got {shown(path)}; give its path"
        )
    folder = Path(path)
    place = folder / SAVED if folder.is_dir() else folder
    saved = _Saved(place)
    if folder.is_dir():
        saved.check_files(folder)
    release = saved.release
    _check_record(release, place)
    if folder.is_dir():
        _check_answers(release, folder / "answers.parquet")
    if ledger is not None:
        check_paid(release, ledger)
    return release


class _Saved:
    """One ``release.zip``."""

    def __init__(self, place: Path) -> None:
        self._place = place
        if not place.exists():
            raise SfumatoError(
                f"there is no {place}; give the folder of a saved release. Folders without "
                f"{SAVED} were saved by an earlier version: save the release again, which costs "
                "nothing where a ledger has stored it"
            )

    @cached_property
    def head(self) -> dict[str, Any]:
        """What the file says of itself."""
        with self._opened() as file:
            head = json.loads(file.read(OBJECTS))
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise SfumatoError(
                f"{self._place} has another format than {FORMAT!r}, which sfumato {VERSION} reads; "
                "open it with the version that wrote it, or save it again"
            )
        return head

    def _opened(self) -> ZipFile:
        try:
            return ZipFile(self._place)
        except (OSError, BadZipFile):
            raise self._damaged() from None

    def _damaged(self) -> SfumatoError:
        return SfumatoError(
            f"{self._place} is damaged or was changed since it was saved; take a copy of it, or "
            "save the release again"
        )

    def check_files(self, folder: Path) -> None:
        """Refuse a folder whose files are not those that were saved together."""
        files = self._guarded(lambda: dict(self.head["files"]))
        present = {name: folder / name for name in files if (folder / name).exists()}
        changed = [n for n, place in present.items() if file_digest(place) != files[n]]
        missing = [n for n in (RECORD, "answers.parquet") if n not in present]
        if missing or changed:
            what = (
                f"{', '.join(changed)} changed" if changed else f"{', '.join(missing)} is missing"
            )
            raise SfumatoError(
                f"the files in {folder} are not those of one release: {what} since it was saved; "
                f"take a copy of all of them, or read {self._place.name} alone"
            )

    @cached_property
    def release(self) -> Release:
        """The release, not yet compared with what it says of itself."""

        def read() -> Release:
            with self._opened() as file:
                provenance = json.loads(file.read(RECORD))
                if provenance.get("schema") not in (SCHEMA, CUT_SCHEMA, FIRST_SCHEMA):
                    raise KeyError("provenance")
                parts = ObjectReader(self.head, file).release()
            estimates, budget, cost = (parts[n] for n in ("estimates", "budget", "cost"))
            if not isinstance(estimates, LinearEstimates | LearnedEstimates):
                raise ValueError("estimates")
            estimates = estimates.restored()
            if not (isinstance(budget, Budget) and isinstance(cost, Cost)):
                raise ValueError("budget")
            return Release(estimates, provenance, budget, cost, bool(parts["is_stored"]))

        return self._guarded(read)

    def _guarded(self, read: Callable[[], T]) -> T:
        """What ``read`` returns; whatever it stumbles over is a damaged file, or another version's.

        Objects of another version fail in as many ways as there are classes.
        """
        try:
            return read()
        except SfumatoError:
            raise
        except Exception as error:
            version = self.head.get("sfumato")
            if version == VERSION:
                raise self._damaged() from error
            raise SfumatoError(
                f"{self._place} was written by sfumato {shown(version)} and cannot be read by "
                f"{VERSION}; read it with that version, or save it again: a release from a ledger "
                "costs nothing the second time"
            ) from error


def _check_record(release: Release, place: Path) -> None:
    """Refuse a release whose record says something else than what it is made of."""
    estimates = release.estimates
    if isinstance(estimates, LinearEstimates):
        facts = facts_of(estimates.forecast, estimates.rows)
        laws = [m.noise for m in _measured(estimates).measurements]
        is_sound = laws == list(estimates.forecast.noise)
        is_sound &= (release.budget, release.cost) == (
            estimates.forecast.budget,
            estimates.forecast.cost,
        )
    else:
        work = estimates.workload
        facts = {"domain_sha256": work.domain.digest(), "workload_sha256": work.digest()}
        facts |= {"public_rows": estimates.rows, "cost": release.cost.as_json()}
        facts |= {"budget": release.budget.as_json()}
        is_sound = True
    record = release.provenance
    wrong = [n for n, fact in facts.items() if record.get(n) != json.loads(json.dumps(fact))]
    if wrong or not is_sound:
        raise SfumatoError(
            f"the provenance record in {place} is not that of its numbers: "
            f"{', '.join(wrong or ['the noise'])} differ; take a copy of the release from its "
            "source"
        )


def _measured(estimates: LinearEstimates) -> Measured:
    assert estimates.measured is not None  # noqa: S101  read so
    return estimates.measured


def _check_answers(release: Release, path: Path) -> None:
    """Refuse answers beside it that do not follow from what was measured."""
    from pyarrow import parquet

    estimates = release.listed
    is_linear = isinstance(estimates, LinearEstimates)
    column = "unbiased" if is_linear else "value"
    try:
        stored = parquet.read_table(path, columns=[column])[column].to_numpy()
    except Exception as error:
        raise SfumatoError(
            f"{path} has no answers with a column {column}; take a copy of the release"
        ) from error
    at = 0
    for group in named_groups(estimates.workload):
        rows = key_term(estimates.workload, group).rows
        part, at = stored[at : at + rows], at + rows
        if not isinstance(group, int):  # follows from the others
            continue
        if isinstance(estimates, LinearEstimates):
            ours = np.asarray(estimates.unbiased[group], dtype=np.float64)
        else:
            ours = estimates.group(group).value()
        slack = LIMITS.saved_rounding * max(1.0, float(np.abs(ours).max(initial=0.0)))
        if part.shape != ours.shape or not np.allclose(part, ours, rtol=0, atol=slack):
            at = -1
            break
    if at != len(stored):
        raise SfumatoError(
            f"the answers in {path} do not follow from what was measured; take a copy of the "
            "release from its source"
        )


def check_paid(release: Release, ledger: Ledger | str | Path) -> None:
    """Refuse a release that a ledger has not paid for, or has stored with other numbers.

    Args:
        release: As it was made, or read.
        ledger: Opened, or its path.

    Raises:
        LedgerError: It has no such debit, or stored other numbers.
    """
    from sfumato.ledger.ledger import Ledger

    opened = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    record = release.provenance.get("ledger")
    key = record.get("key") if isinstance(record, Mapping) else None
    entry = opened.entry(key) if isinstance(key, str) else None
    is_paid = (
        isinstance(record, Mapping)
        and entry is not None
        and entry.hash == record.get("hash")
        and entry.cost == release.cost
    )
    if not is_paid or not isinstance(key, str):
        raise LedgerError(
            "this ledger has no debit for this release; give the ledger that paid for it, which "
            "the record names under 'ledger'"
        )
    stored = opened.answer(key)
    if stored is None or not _is_of(release.estimates, stored):
        raise LedgerError(
            "the ledger has stored other numbers for this release: what is in the file is not "
            "what was measured"
        )


def _is_of(estimates: Estimates, stored: bytes) -> bool:
    """Whether these are the noisy numbers of a stored answer."""
    if isinstance(estimates, LinearEstimates):
        own = _measured(estimates)
        theirs = Measured.from_bytes(stored, estimates.forecast.noise)
        ours, others = own.measurements, theirs.measurements
        rows = (own.rows, theirs.rows)
    elif isinstance(estimates, LearnedEstimates):
        steps, other = estimates.transcript, Transcript.from_bytes(stored)
        if [(s.place, s.measurement.noise) for s in steps.steps] != [
            (s.place, s.measurement.noise) for s in other.steps
        ]:
            return False
        ours, others = (tuple(s.measurement for s in t.steps) for t in (steps, other))
        rows = (steps.rows, other.rows)
    else:
        return False
    same = all(np.array_equal(a.units, b.units) for a, b in zip(ours, others, strict=True))
    return same and rows[0] == rows[1]
