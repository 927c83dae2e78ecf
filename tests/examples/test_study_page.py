# SPDX-License-Identifier: Apache-2.0
"""The page of ``sf.study`` runs as it is written, and has every mechanism of the notes."""

from __future__ import annotations

import re
from pathlib import Path

import sfumato as sf

PAGE = (Path(__file__).parents[2] / "docs" / "study.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

WANTED = (
    *("laplace_mechanism", "gaussian_mechanism", "randomized_response", "contingency_table"),
    *("binary_tree", "above_threshold", "sparse_vector", "numeric_sparse"),
    *("exponential_mechanism", "noisy_max", "permute_and_flip", "hedge"),
    *("multiplicative_weights", "private_multiplicative_weights", "projection_mechanism"),
    *("separation_oracle", "factorization_norm", "approximate_factorization_norm"),
    *("gaussian_width", "mean_width", "sample_sizes", "factorization_mechanism"),
)


def test_every_block_of_the_page_runs():
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "docs/study.md", "exec"), names)  # noqa: S102
    assert len(BLOCKS) >= 10


def test_every_mechanism_and_quantity_of_the_notes_is_public_and_on_the_page():
    code = "\n".join(BLOCKS)
    for name in WANTED:
        assert name in sf.study.__all__
        assert f"sf.study.{name}(" in code
    sizes = [n for n in sf.study.__all__ if n.endswith("_rows_needed")]
    assert [n for n in sizes if n not in ("gaussian_rows_needed", "table_rows_needed")] == [
        n for n in sizes if f"sf.study.{n}(" in code
    ]
