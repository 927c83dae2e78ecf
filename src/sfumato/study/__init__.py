# SPDX-License-Identifier: Apache-2.0
"""The mathematics of the lecture notes, as ``sf.study``: for study and comparison, not for release.

    import sfumato as sf
    sf.study.factorize(matrix).gamma          # the factorization norm, with a certificate
    sf.study.response_error(sf.study.RandomizedResponse(1, 2), rows=1000, queries=10, beta=0.05)

docs/map.md leads from every theorem and algorithm of the notes to its name here. Modules of this
room are called by no release. Names of other rooms, such as the sparse vector of the vault, are the
very functions that releases run, without what guards them: no ledger is debited.
"""

from __future__ import annotations

from importlib import import_module

# Every name and the module it is imported from; ``__init__.pyi`` says the same to type checkers.
_HOMES = {
    # Factorization norms
    "MatrixFactorization": "sfumato.study.factorization_norm",
    "Tree": "sfumato.strategy.trees",
    "factorize": "sfumato.study.factorization_norm",
    "squared_diameter": "sfumato.strategy.moves",
    "LowerBound": "sfumato.study.lower_bounds",
    "lower_bound": "sfumato.study.lower_bounds",
    # Approximate factorization
    "ApproximateFactorization": "sfumato.strategy.biased",
    "bounded_bias": "sfumato.strategy.biased",
    "chebyshev": "sfumato.strategy.conjunctions",
    "chebyshev_error": "sfumato.strategy.conjunctions",
    "conjunctions_by_polynomial": "sfumato.strategy.conjunctions",
    "gamma_of": "sfumato.strategy.conjunctions",
    "least_cost": "sfumato.strategy.conjunctions",
    "least_worst_case": "sfumato.strategy.biased",
    "trade_off": "sfumato.strategy.biased",
    # Widths and projection
    "Hull": "sfumato.study.widths",
    "ProjectionForecast": "sfumato.study.projection_forecast",
    "feasible_bounds": "sfumato.refine.intervals",
    "forecast_projection": "sfumato.study.projection_forecast",
    "gaussian_width": "sfumato.study.widths",
    "mean_norm": "sfumato.study.widths",
    "mean_width": "sfumato.study.widths",
    "projected_noise": "sfumato.study.widths",
    "support": "sfumato.study.widths",
    "support_bound": "sfumato.study.supports",
    # Error bounds
    "gaussian_error": "sfumato.study.error_bounds",
    "gaussian_rows_needed": "sfumato.study.error_bounds",
    "laplace_error": "sfumato.study.error_bounds",
    "laplace_rows_needed": "sfumato.study.error_bounds",
    "table_error": "sfumato.study.error_bounds",
    "table_rows_needed": "sfumato.study.error_bounds",
    # Calibration
    "calibrate": "sfumato.planning.calibrate",
    "gaussian_mu_down": "sfumato.privacy.gaussian",
    "privacy_loss": "sfumato.planning.calibrate",
    # Hedge and multiplicative weights
    "Experts": "sfumato.study.hedge",
    "Weights": "sfumato.study.hedge",
    "best_rate": "sfumato.study.hedge",
    "multiplicative_weights": "sfumato.study.hedge",
    "weights_rows_needed": "sfumato.study.hedge",
    # Sparse vectors
    "Discoverer": "sfumato.vault.sparse",
    "SparseLaw": "sfumato.privacy.sparse_vector",
    "SparsePlan": "sfumato.planning.sparse_plans",
    "SparseVector": "sfumato.vault.sparse",
    "above_threshold": "sfumato.vault.sparse",
    "noise_of": "sfumato.planning.sparse_plans",
    "plan_sparse": "sfumato.planning.sparse_plans",
    "sparse_of_epsilon": "sfumato.planning.sparse_plans",
    # Selection and noise
    "Sensitive": "sfumato.vault.sensitive",
    "discrete_laplace": "sfumato.vault.noise",
    "exponential_mechanism": "sfumato.vault.select",
    "report_noisy_max": "sfumato.vault.select",
    "rounded_gaussian": "sfumato.vault.noise",
    "system_words": "sfumato.random",
    "KNorm": "sfumato.vault.k_norm",
    # The local model
    "LocalFactorization": "sfumato.study.local_factorization",
    "RandomizedResponse": "sfumato.study.local_model",
    "encode_table": "sfumato.study.local_model",
    "estimate_reports": "sfumato.study.local_model",
    "estimate_table": "sfumato.study.local_model",
    "joint_response": "sfumato.study.local_model",
    "product_queries": "sfumato.study.local_model",
    "response_error": "sfumato.study.local_model",
    "response_rows_needed": "sfumato.study.local_model",
    # Attacks
    "ReconstructionTable": "sfumato.study.reconstruction",
    "reconstruct": "sfumato.study.reconstruction",
    "reconstruction_table": "sfumato.study.reconstruction",
    # Made-up data
    "MadeUp": "sfumato.study.simulated",
    "measure_projection": "sfumato.study.simulated",
    "simulated_noise": "sfumato.study.simulated",
}

__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    """What ``sf.study.<Tab>`` lists."""
    return list(__all__)


def __getattr__(name: str) -> object:
    """Names are imported on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sfumato.study' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
