# SPDX-License-Identifier: Apache-2.0
"""The ideas of the lecture notes: made-up data, the library's own parts, a figure.

Every module computes something small with the same functions that a release or a session uses, and
draws it as SVG (``drawing.py``). No table of records is read, nothing is spent, and no module knows
of the page that shows it, so tests can ask what must hold.
"""
