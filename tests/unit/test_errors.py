# SPDX-License-Identifier: Apache-2.0
"""The errors that sfumato raises on purpose: the tree at the head of the module is the real one."""

from __future__ import annotations

import re

from sfumato import errors


def drawn() -> dict[str, str]:
    """Name and parent of every class in the tree that the docstring of the module draws."""
    above: list[tuple[int, str]] = [(-1, "Exception")]
    parents = {}
    for indent, name in re.findall(
        r"^( {4,})([A-Z]\w+) {2,}\S", errors.__doc__ or "", re.MULTILINE
    ):
        while above[-1][0] >= len(indent):
            above.pop()
        parents[name] = above[-1][1]
        above.append((len(indent), name))
    return parents


def test_the_drawn_tree_of_errors_is_that_of_the_classes():
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    own = [each for each in classes if each.__module__ == errors.__name__]
    raised = {each.__name__: each.__base__.__name__ for each in own}
    assert drawn() == raised
