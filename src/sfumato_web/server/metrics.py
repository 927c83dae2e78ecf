# SPDX-License-Identifier: Apache-2.0
"""Counters in the text format of Prometheus; none of them depends on a value of the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from threading import Lock

__all__ = [
    "Metrics",
    "prometheus",
]


class Metrics:
    """Requests by route and status, questions by dataset and kind."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._answers: Counter[tuple[str, str]] = Counter()

    def request(self, route: str, status: int) -> None:
        """Count one response."""
        with self._lock:
            self._requests[route, str(status)] += 1

    def answered(self, dataset: str, kind: str, number: int = 1) -> None:
        """Count answers: ``new`` or ``stored``."""
        with self._lock:
            self._answers[dataset, kind] += number

    def text(self, remaining: Mapping[str, float | None]) -> str:
        """The counters, with the share of each budget that remains.

        Args:
            remaining: the share of each dataset that may be seen; None where its ledger cannot be
                read now. Counters of other datasets are left out.

        Returns:
            The text that Prometheus reads.
        """
        with self._lock:
            requests, answers = dict(self._requests), dict(self._answers)
        return "".join(
            [
                prometheus(
                    "sfumato_requests_total",
                    "counter",
                    "responses by route and status",
                    (({"route": r, "status": s}, n) for (r, s), n in sorted(requests.items())),
                ),
                prometheus(
                    "sfumato_answers_total",
                    "counter",
                    "answers by dataset and kind",
                    (
                        ({"dataset": d, "kind": k}, n)
                        for (d, k), n in sorted(answers.items())
                        if d in remaining
                    ),
                ),
                prometheus(
                    "sfumato_budget_remaining_share",
                    "gauge",
                    "the share of each budget that is left; missing while a ledger cannot be read",
                    (
                        ({"dataset": d}, share)
                        for d, share in remaining.items()
                        if share is not None
                    ),
                ),
                prometheus(
                    "sfumato_ledger_up",
                    "gauge",
                    "whether the ledger of a dataset could be read",
                    (({"dataset": d}, float(s is not None)) for d, s in remaining.items()),
                ),
            ]
        )


def prometheus(
    name: str, kind: str, about: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> str:
    r"""One metric as text.

    >>> prometheus("a_total", "counter", "all", [({"route": "/x"}, 2)])
    '# HELP a_total all\n# TYPE a_total counter\na_total{route="/x"} 2\n'
    """
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value:.12g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
