# SPDX-License-Identifier: Apache-2.0
"""Tries to break our own claims, and must break the known-wrong ones (docs/audit.md).

registry.py   what is audited, and whether anything is left out
examine.py    a mechanism on neighbouring tables: search events, test them on fresh runs
events.py     scores that tell two tables apart   bounds.py     what a count of hits proves
subjects/     the mechanisms of the library       broken.py     mechanisms known to be wrong
command.py    ``sfumato audit`` and its charts    audit_limits.py  how hard it looks
"""
