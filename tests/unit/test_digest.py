# SPDX-License-Identifier: Apache-2.0
"""Canonical JSON and its SHA-256: ledgers hold these bytes, so they are pinned here."""

from __future__ import annotations

import math

import pytest

from sfumato.digest import canonical_json, json_digest, sha256


def test_equal_requests_have_one_text_and_one_key():
    assert json_digest({"a": 1, "b": 2}) == json_digest({"b": 2, "a": 1})
    assert json_digest({"a": 1}) != json_digest({"a": 2})
    assert canonical_json({"é": (1, 2.5), "a": None}) == '{"a":null,"\\u00e9":[1,2.5]}'


def test_the_key_of_a_request_stays_what_it_is():
    # printf '{"a":[0.5,"x"],"b":1}' | sha256sum
    expected = "9ba1833eb37d5171929cf1ef8085d26ff9e663581bc24924d0fd8e5731ebe2f1"
    assert json_digest({"b": 1, "a": [0.5, "x"]}) == expected == sha256(b'{"a":[0.5,"x"],"b":1}')


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, b"x"])
def test_what_is_not_json_has_no_text(value):
    with pytest.raises((ValueError, TypeError)):
        canonical_json({"a": value})
