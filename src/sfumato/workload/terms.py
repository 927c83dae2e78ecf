# SPDX-License-Identifier: Apache-2.0
"""Terms: groups of linear queries over the table of a few attributes.

A term reads the exact table (the marginal) of its attributes and nothing else. Three kinds:

* ``Product``: one 1-D query set per attribute; its queries are all combinations. Attributes that
  are not named are totalled.
* ``Explicit``: given coefficients over the cells of its attributes.
* ``Predicates``: conditions, each one counting query; never built when its attributes have too
  many cells together.

Workloads (what is asked) and strategies (what is measured) are both unions of terms.
"""

from __future__ import annotations

from sfumato.workload.counting import WIDE_CELLS, Predicates
from sfumato.workload.given import Explicit
from sfumato.workload.products import Product
from sfumato.workload.term import Said, Term

__all__ = ["WIDE_CELLS", "Explicit", "Predicates", "Product", "Said", "Term"]
