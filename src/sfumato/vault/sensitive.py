# SPDX-License-Identifier: Apache-2.0
"""`Sensitive`, which holds exact data and shows none of it, and `sealed`, which drops errors.

Exact counts must appear in no log, traceback, repr, pickle or cache. They therefore travel
through the vault inside a `Sensitive`, which shows nothing about itself, and every call into an
engine runs under `sealed`, because the messages of engines quote the values they choke on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NoReturn, TypeVar

from sfumato.errors import SfumatoError, TableError

__all__ = ["Redacted", "Sensitive", "before_rows", "sealed"]


T = TypeVar("T")

SHOWN = "<exact counts: not shown>"


class Redacted:
    """Something that shows the same few words whatever it holds, and that cannot be copied out.

    >>> f"{Redacted():,d}"
    '<exact counts: not shown>'
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return SHOWN

    def __iter__(self) -> Iterator[NoReturn]:
        raise _refusal("iterated over")

    def __bool__(self) -> NoReturn:
        raise _refusal("tested for truth")

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise _refusal("turned into an array")

    def __getstate__(self) -> NoReturn:
        raise _refusal("copied or pickled")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise _refusal("copied or pickled")


class Sensitive(Redacted, Generic[T]):
    """Exact data that only the vault opens.

    Args:
        exact: The exact data.

    >>> import sfumato as sf
    >>> box = sf.study.Sensitive((17, 4))
    >>> box
    <exact counts: not shown>
    """

    __slots__ = ("_exact",)

    def __init__(self, exact: T) -> None:
        self._exact = exact

    def reveal(self) -> T:
        """The exact data; called inside the vault only.

        Returns:
            The exact data.
        """
        return self._exact


def sealed(action: Callable[[], T], message: str) -> T:
    """Run ``action``; whatever goes wrong in it becomes a `TableError` that says ``message``.

    The message is written beforehand, from public inputs. The original error is dropped with its
    text and its frames, which may hold rows: the new one is raised after the handler has ended,
    so that it carries no context either.

    >>> sealed(lambda: [1][2], "the table cannot be read")
    Traceback (most recent call last):
    ...
    sfumato.errors.TableError: the table cannot be read
    """
    try:
        return action()
    except SfumatoError:
        raise
    except Exception:  # noqa: S110 - nothing of it may be kept, not even in a log
        pass
    raise TableError(message)


def before_rows(
    action: Callable[[], T], message: str, reasons: tuple[type[Exception], ...] = (Exception,)
) -> T:
    """Run ``action``, which reads no row; the `TableError` of a failure says why in its own words.

    Privacy: public by the choice of its callers. Errors of the types ``reasons`` must not depend on
    any row, as those of starting an engine or of looking names up in a catalogue. The first line
    of what such an error says is kept; an error of another type is dropped whole, as by `sealed`.

    >>> before_rows(lambda: {}["x"], "the engine cannot be started")
    Traceback (most recent call last):
    ...
    sfumato.errors.TableError: the engine cannot be started (KeyError: 'x')
    """
    try:
        return action()
    except SfumatoError:
        raise
    except reasons as error:
        lines = str(error).strip().splitlines()
        reason = f" ({type(error).__name__}: {lines[0].strip()})" if lines else ""
    except Exception:
        reason = ""
    raise TableError(message + reason)


def _refusal(verb: str) -> SfumatoError:
    return SfumatoError(f"exact counts stay in the vault: they cannot be {verb}")
