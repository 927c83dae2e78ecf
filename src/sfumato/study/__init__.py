# SPDX-License-Identifier: Apache-2.0
"""The mechanisms, bounds and quantities of the lecture notes by the notes' names, as ``sf.study``.

    import sfumato as sf
    noisy = sf.study.laplace_mechanism(F, histogram, epsilon=1)
    noisy.answers, noisy.cost, noisy.noise, noisy.error_bound(beta=0.05)
    sf.study.factorization_norm(F)      # gamma(F), with a certificate

docs/study.md shows every name once, docs/map.md leads from every theorem and algorithm of the notes
to its name here. Mechanisms draw exact noise, on arrays and tables; with ``ledger=`` they debit
before it is drawn, without one what was spent is the caller's to remember. Releases (`sf.plan`)
choose among mechanisms and have intervals. Modules of this room are called by no release, names of
other rooms are the very functions that releases run.
"""

from __future__ import annotations

from importlib import import_module

# Every name and the module it is imported from; ``__init__.pyi`` says the same to type checkers.
_HOMES = {
    # Linear mechanisms
    "LinearOutcome": "sfumato.run.textbook.outcomes",
    "NoiseScale": "sfumato.run.textbook.outcomes",
    "Outcome": "sfumato.run.textbook.outcomes",
    "ProjectedOutcome": "sfumato.run.textbook.outcomes",
    "SeededWords": "sfumato.run.textbook.outcomes",
    "binary_tree": "sfumato.run.textbook.linear_mechanisms",
    "contingency_table": "sfumato.run.textbook.linear_mechanisms",
    "factorization_mechanism": "sfumato.run.textbook.linear_mechanisms",
    "gaussian_mechanism": "sfumato.run.textbook.linear_mechanisms",
    "laplace_mechanism": "sfumato.run.textbook.linear_mechanisms",
    "projection_mechanism": "sfumato.run.textbook.linear_mechanisms",
    # Sparse vectors
    "Discoverer": "sfumato.vault.mechanisms.sparse",
    "SparseLaw": "sfumato.privacy.sparse_vector",
    "SparseOutcome": "sfumato.run.textbook.sparse_vectors",
    "SparseForecast": "sfumato.planning.sparse_plans",
    "SparseVector": "sfumato.vault.mechanisms.sparse",
    "WeightsOutcome": "sfumato.run.textbook.private_weights",
    "above_threshold": "sfumato.run.textbook.sparse_vectors",
    "noise_of": "sfumato.planning.sparse_plans",
    "numeric_sparse": "sfumato.run.textbook.sparse_vectors",
    "plan_sparse": "sfumato.planning.sparse_plans",
    "private_multiplicative_weights": "sfumato.run.textbook.private_weights",
    "sparse_of_epsilon": "sfumato.planning.sparse_plans",
    "sparse_vector": "sfumato.run.textbook.sparse_vectors",
    # Selection and noise
    "ChoiceOutcome": "sfumato.run.textbook.choice_mechanisms",
    "Sensitive": "sfumato.vault.count",
    "discrete_laplace": "sfumato.vault.mechanisms.noise",
    "exponential_mechanism": "sfumato.run.textbook.choice_mechanisms",
    "noisy_max": "sfumato.run.textbook.choice_mechanisms",
    "permute_and_flip": "sfumato.run.textbook.choice_mechanisms",
    "report_noisy_max": "sfumato.vault.mechanisms.select",
    "rounded_gaussian": "sfumato.vault.mechanisms.noise",
    "system_words": "sfumato.random",
    "KNorm": "sfumato.vault.mechanisms.k_norm",
    # Randomized response, the local model
    "LocalFactorization": "sfumato.study.local_factorization",
    "RandomizedResponse": "sfumato.study.local_model",
    "ResponseOutcome": "sfumato.run.textbook.local_responses",
    "UnaryEncoding": "sfumato.study.local_model",
    "encode_table": "sfumato.study.local_model",
    "estimate_reports": "sfumato.study.local_model",
    "estimate_table": "sfumato.study.local_model",
    "joint_response": "sfumato.study.local_model",
    "product_queries": "sfumato.study.local_model",
    "randomized_response": "sfumato.run.textbook.local_responses",
    # Factorization norms
    "FactorizationNorm": "sfumato.study.matrix_norms",
    "MatrixFactorization": "sfumato.study.matrix_norms",
    "Tree": "sfumato.strategy.trees",
    "approximate_factorization_norm": "sfumato.study.matrix_norms",
    "factorization_norm": "sfumato.study.matrix_norms",
    "factorize": "sfumato.study.matrix_norms",
    "squared_diameter": "sfumato.strategy.moves",
    "LowerBound": "sfumato.study.error_bounds",
    "lower_bound": "sfumato.study.error_bounds",
    # Approximate factorization
    "ApproximateFactorization": "sfumato.strategy.biased",
    "bounded_bias": "sfumato.strategy.biased",
    "ConjunctionError": "sfumato.study.error_bounds",
    "chebyshev": "sfumato.strategy.conjunctions",
    "chebyshev_error": "sfumato.strategy.conjunctions",
    "conjunction_errors": "sfumato.study.error_bounds",
    "conjunctions_by_polynomial": "sfumato.strategy.conjunctions",
    "gamma_of": "sfumato.strategy.conjunctions",
    "least_cost": "sfumato.strategy.conjunctions",
    "least_worst_case": "sfumato.strategy.biased",
    "trade_off": "sfumato.strategy.biased",
    # Widths and projection
    "Hull": "sfumato.study.widths",
    "ProjectionForecast": "sfumato.study.projection_forecast",
    "Separation": "sfumato.study.supports",
    "feasible_bounds": "sfumato.refine.intervals",
    "forecast_projection": "sfumato.study.projection_forecast",
    "gaussian_width": "sfumato.study.widths",
    "mean_norm": "sfumato.study.widths",
    "mean_width": "sfumato.study.widths",
    "projected_noise": "sfumato.study.widths",
    "separation_oracle": "sfumato.study.supports",
    "support": "sfumato.study.widths",
    "support_bound": "sfumato.study.supports",
    # Error bounds and sample sizes
    "approximate_rows_needed": "sfumato.study.error_bounds",
    "factorization_rows_needed": "sfumato.study.error_bounds",
    "gaussian_error": "sfumato.study.error_bounds",
    "gaussian_rows_needed": "sfumato.study.error_bounds",
    "laplace_error": "sfumato.study.error_bounds",
    "laplace_rows_needed": "sfumato.study.error_bounds",
    "projection_error": "sfumato.study.error_bounds",
    "projection_rows_needed": "sfumato.study.error_bounds",
    "response_error": "sfumato.study.local_model",
    "response_rows_needed": "sfumato.study.local_model",
    "sample_sizes": "sfumato.study.error_bounds",
    "sparse_error": "sfumato.study.error_bounds",
    "sparse_rows_needed": "sfumato.study.error_bounds",
    "table_error": "sfumato.study.error_bounds",
    "table_rows_needed": "sfumato.study.error_bounds",
    "tree_error": "sfumato.study.error_bounds",
    "tree_rows_needed": "sfumato.study.error_bounds",
    "weights_error": "sfumato.study.experts",
    "weights_rows_needed": "sfumato.study.experts",
    # Calibration
    "calibrate": "sfumato.planning.calibrate",
    "gaussian_mu_down": "sfumato.privacy.gaussian",
    "privacy_loss": "sfumato.planning.calibrate",
    # Hedge and multiplicative weights
    "Experts": "sfumato.study.experts",
    "HedgeRun": "sfumato.study.experts",
    "LearntAnswers": "sfumato.study.experts",
    "Weights": "sfumato.study.experts",
    "best_rate": "sfumato.study.experts",
    "hedge": "sfumato.study.experts",
    "multiplicative_weights": "sfumato.study.experts",
    # Attacks
    "ReconstructionTable": "sfumato.study.reconstruction",
    "reconstruct": "sfumato.study.reconstruction",
    "reconstruction_table": "sfumato.study.reconstruction",
    # Made-up data
    "MadeUp": "sfumato.study.simulated",
    "measure_projection": "sfumato.study.simulated",
    "simulated_noise": "sfumato.study.simulated",
}

_RENAMED = {"SparsePlan": "SparseForecast"}  # names of before, which still work

__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    """What ``sf.study.<Tab>`` lists."""
    return list(__all__)


def __getattr__(name: str) -> object:
    """Names are imported on first use."""
    if name in _RENAMED:
        import warnings

        new = _RENAMED[name]
        text = f"sfumato.study.{name} is now sfumato.study.{new}"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return __getattr__(new)
    if name not in _HOMES:
        raise AttributeError(f"module 'sfumato.study' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
