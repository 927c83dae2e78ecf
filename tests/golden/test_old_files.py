# SPDX-License-Identifier: Apache-2.0
"""Ledgers, specs, schemas and releases of earlier versions open, verify and answer, for nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sfumato as sf
from tests.golden import old
from tests.golden.people import people
from tests.golden.stored import differences, environment, plain

FOLDERS = sorted(path for path in old.OLD.iterdir() if path.is_dir())
CASES = [(folder, name) for folder in FOLDERS for name in old.LEDGERS]


def _stored(folder: Path) -> dict[str, dict[str, object]]:
    found = json.loads((folder / "answers.json").read_text())
    assert isinstance(found, dict)
    return found


# How answers are projected may become better in later versions: those that are published move
# within their intervals. What was measured, and so intervals and unbiased answers, stays to the
# last digit, which new noise would change; an end that was moved to the published answer moves
# along with it. Answers of adaptive releases that had no interval may have one, for which those of
# measured tables are a little longer (docs/proofs/adaptive.md, Theorem 8).
PROJECTED = 1e-4
LONGER = 0.05
WRITTEN_WITH = "SkylakeX"  # the kernels of linear algebra


def _same(expected: object, found: object) -> None:
    changed = list(differences(expected, _as_published(expected, found), projected=PROJECTED))
    assert not changed, "\n".join(changed[:40])


def _as_published(expected: object, found: object) -> object:
    """What was found, with published answers that only moved within their intervals as before."""
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [_as_published(a, b) for a, b in zip(expected, found, strict=True)]
    if not isinstance(expected, dict) or not isinstance(found, dict):
        return found
    out = {k: _as_published(expected[k], v) if k in expected else v for k, v in found.items()}
    if isinstance(out.get("files"), dict):  # later versions may write more beside them
        out["files"] = {k: v for k, v in out["files"].items() if k in expected["files"]}
    counts = [
        re.fullmatch(r"(\d+)( of .* answers, .*)", str(d.get("intervals")))
        for d in (expected, found)
    ]
    if counts[0] and counts[1] and counts[0][2] == counts[1][2]:
        is_more = int(counts[1][1]) >= int(counts[0][1])
        out["intervals"] = expected["intervals"] if is_more else found["intervals"]
    columns = [[d.get(name) for name in ("value", "low", "high")] for d in (expected, found)]
    if not all(isinstance(c, list) for both in columns for c in both):
        return out
    before, after = (list(zip(*both, strict=True)) for both in columns)
    if len(before) != len(after):
        return out
    widths = [b - a for _, a, b in before if isinstance(a, float) and isinstance(b, float)]
    rows = [_moved(a, b, max(widths, default=0.0)) for a, b in zip(before, after, strict=True)]
    for place, name in enumerate(("value", "low", "high")):
        out[name] = [row[place] for row in rows]
    return out


def _moved(before: Sequence[object], after: Sequence[object], width: float) -> Sequence[object]:
    """The row of before, where the answer moved by no more than the widest interval."""
    if before[1:] == ("nan", "nan") and all(isinstance(v, int | float) for v in after):
        return (*_moved((before[0], 0.0, 0.0), (after[0], 0.0, 0.0), width)[:1], *before[1:])
    if not all(isinstance(v, int | float) for v in (*before, *after)):
        return after
    value, low, high = (float(v) for v in before)  # type: ignore[arg-type]
    other, *ends = (float(v) for v in after)  # type: ignore[arg-type]
    if abs(other - value) > width:
        return after
    unmoved = [a if b in (value, other) else b for a, b in zip((low, high), ends, strict=True)]
    room = LONGER * (high - low) + 1  # ends are rounded outwards to whole counts
    if low - room <= unmoved[0] <= low and high <= unmoved[1] <= high + room:
        return before
    return (before[0], *unmoved)


def test_intervals_that_become_shorter_or_much_longer_are_noticed() -> None:
    assert _moved((5.0, 0.0, 100.0), (6.0, -1.0, 104.0), 100.0) == (5.0, 0.0, 100.0)
    assert _moved((5.0, "nan", "nan"), (6.0, 0.0, 9.0), 100.0) == (5.0, "nan", "nan")
    assert _moved((5.0, "nan", "nan"), (600.0, 0.0, 9.0), 100.0) == (600.0, "nan", "nan")
    assert _moved((5.0, 0.0, 100.0), (6.0, 1.0, 100.0), 100.0) == (5.0, 1.0, 100.0)
    assert _moved((5.0, 0.0, 100.0), (6.0, 0.0, 120.0), 100.0) == (5.0, 0.0, 120.0)


@pytest.fixture
def same_arithmetic() -> None:
    """Certified optima are found again to the bit only where products are summed alike."""
    here = environment()["arithmetic"]
    if here != WRITTEN_WITH:
        pytest.skip(f"written with {WRITTEN_WITH} arithmetic, this machine has {here}")


def test_there_are_files_of_an_earlier_version() -> None:
    assert FOLDERS


@pytest.mark.usefixtures("same_arithmetic")
@pytest.mark.parametrize(("folder", "name"), CASES, ids=lambda case: getattr(case, "name", case))
def test_an_old_ledger_answers_what_is_stored_and_spends_nothing(
    folder: Path, name: str, tmp_path: Path
) -> None:
    ledger = sf.Ledger.open(old.restored(folder, name, tmp_path))
    expected = _stored(folder)[name]
    assert ledger.verify().head_file_checked
    _same(expected["state"], old.state_of(ledger))
    _same(expected["answers"], old.asked_of(name, ledger))
    before, after = expected["state"], old.state_of(ledger)
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    records = "records"  # a watch or a session that is opened and closed is noted
    _same({**before, records: None}, {**after, records: None})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_old_ledger_goes_on(folder: Path, tmp_path: Path) -> None:
    ledger = sf.Ledger.open(old.restored(folder, "kinds", tmp_path))
    before = len(ledger.entries())
    plan = sf.plan(sf.marginals(old.PEOPLE, [("member",)]), sf.Budget(epsilon="1/8"))
    plan.release(people(), ledger, name="people")
    assert len(ledger.entries()) == before + 1
    assert ledger.verify().problems == ()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_old_ledger_that_is_frozen_takes_no_debit(folder: Path, tmp_path: Path) -> None:
    ledger = sf.Ledger.open(old.restored(folder, "frozen", tmp_path))
    plan = sf.plan(sf.marginals(old.PEOPLE, [("member",)]), sf.Budget(epsilon="1/8"))
    with pytest.raises(Exception, match="frozen by its curator"):
        plan.release(people(), ledger, name="people")
    [change, *_] = ledger.changes()
    assert change.describe().endswith("by ann: one more survey")


@pytest.mark.usefixtures("same_arithmetic")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_old_specs_find_their_answers_and_publish_the_same_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for file in old.FILES:
        shutil.copy(folder / file, tmp_path / file)
    people().to_csv(tmp_path / "people.csv", index=False)
    old.restored(folder, "people", tmp_path)
    _same(_stored(folder)["specs"], old.asked_by_specs(tmp_path))
    answers, provenance = (folder / "release" / file for file in old.PUBLISHED)
    out = tmp_path / "release-out"
    was, now = (pq.read_table(path) for path in (answers, out / answers.name))
    assert was.schema.equals(now.schema)
    _same(plain(was.to_pydict()), plain(now.to_pydict()))
    was, now = (json.loads(path.read_text()) for path in (provenance, out / provenance.name))
    assert was.keys() == now.keys()
    # Bounds and the way of projecting may become better; the date is another one.
    other = dict.fromkeys(("created", "certificate", "projection"))
    _same({**plain(was), **other}, {**plain(now), **other})  # type: ignore[dict-item]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_old_schema_is_the_domain_that_it_was(folder: Path) -> None:
    domain = sf.Domain.from_toml(folder / "people.toml")
    assert domain == old.PEOPLE
    assert domain.digest() == old.PEOPLE.digest()
