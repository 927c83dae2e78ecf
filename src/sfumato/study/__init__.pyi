# SPDX-License-Identifier: Apache-2.0
from sfumato.planning.calibrate import calibrate as calibrate
from sfumato.planning.calibrate import privacy_loss as privacy_loss
from sfumato.planning.sparse_plans import SparseForecast as SparseForecast
from sfumato.planning.sparse_plans import noise_of as noise_of
from sfumato.planning.sparse_plans import plan_sparse as plan_sparse
from sfumato.planning.sparse_plans import sparse_of_epsilon as sparse_of_epsilon
from sfumato.privacy.gaussian import gaussian_mu_down as gaussian_mu_down
from sfumato.privacy.sparse_vector import SparseLaw as SparseLaw
from sfumato.random import system_words as system_words
from sfumato.refine.intervals import feasible_bounds as feasible_bounds
from sfumato.run.textbook.choice_mechanisms import ChoiceOutcome as ChoiceOutcome
from sfumato.run.textbook.choice_mechanisms import exponential_mechanism as exponential_mechanism
from sfumato.run.textbook.choice_mechanisms import noisy_max as noisy_max
from sfumato.run.textbook.choice_mechanisms import permute_and_flip as permute_and_flip
from sfumato.run.textbook.linear_mechanisms import binary_tree as binary_tree
from sfumato.run.textbook.linear_mechanisms import contingency_table as contingency_table
from sfumato.run.textbook.linear_mechanisms import (
    factorization_mechanism as factorization_mechanism,
)
from sfumato.run.textbook.linear_mechanisms import gaussian_mechanism as gaussian_mechanism
from sfumato.run.textbook.linear_mechanisms import laplace_mechanism as laplace_mechanism
from sfumato.run.textbook.linear_mechanisms import projection_mechanism as projection_mechanism
from sfumato.run.textbook.local_responses import ResponseOutcome as ResponseOutcome
from sfumato.run.textbook.local_responses import randomized_response as randomized_response
from sfumato.run.textbook.outcomes import LinearOutcome as LinearOutcome
from sfumato.run.textbook.outcomes import NoiseScale as NoiseScale
from sfumato.run.textbook.outcomes import Outcome as Outcome
from sfumato.run.textbook.outcomes import ProjectedOutcome as ProjectedOutcome
from sfumato.run.textbook.outcomes import SeededWords as SeededWords
from sfumato.run.textbook.private_weights import WeightsOutcome as WeightsOutcome
from sfumato.run.textbook.private_weights import (
    private_multiplicative_weights as private_multiplicative_weights,
)
from sfumato.run.textbook.sparse_vectors import SparseOutcome as SparseOutcome
from sfumato.run.textbook.sparse_vectors import above_threshold as above_threshold
from sfumato.run.textbook.sparse_vectors import numeric_sparse as numeric_sparse
from sfumato.run.textbook.sparse_vectors import sparse_vector as sparse_vector
from sfumato.strategy.biased import ApproximateFactorization as ApproximateFactorization
from sfumato.strategy.biased import bounded_bias as bounded_bias
from sfumato.strategy.biased import least_worst_case as least_worst_case
from sfumato.strategy.biased import trade_off as trade_off
from sfumato.strategy.conjunctions import chebyshev as chebyshev
from sfumato.strategy.conjunctions import chebyshev_error as chebyshev_error
from sfumato.strategy.conjunctions import conjunctions_by_polynomial as conjunctions_by_polynomial
from sfumato.strategy.conjunctions import gamma_of as gamma_of
from sfumato.strategy.conjunctions import least_cost as least_cost
from sfumato.strategy.moves import squared_diameter as squared_diameter
from sfumato.strategy.trees import Tree as Tree
from sfumato.study.error_bounds import ConjunctionError as ConjunctionError
from sfumato.study.error_bounds import LowerBound as LowerBound
from sfumato.study.error_bounds import approximate_rows_needed as approximate_rows_needed
from sfumato.study.error_bounds import conjunction_errors as conjunction_errors
from sfumato.study.error_bounds import factorization_rows_needed as factorization_rows_needed
from sfumato.study.error_bounds import gaussian_error as gaussian_error
from sfumato.study.error_bounds import gaussian_rows_needed as gaussian_rows_needed
from sfumato.study.error_bounds import laplace_error as laplace_error
from sfumato.study.error_bounds import laplace_rows_needed as laplace_rows_needed
from sfumato.study.error_bounds import lower_bound as lower_bound
from sfumato.study.error_bounds import projection_error as projection_error
from sfumato.study.error_bounds import projection_rows_needed as projection_rows_needed
from sfumato.study.error_bounds import sample_sizes as sample_sizes
from sfumato.study.error_bounds import sparse_error as sparse_error
from sfumato.study.error_bounds import sparse_rows_needed as sparse_rows_needed
from sfumato.study.error_bounds import table_error as table_error
from sfumato.study.error_bounds import table_rows_needed as table_rows_needed
from sfumato.study.error_bounds import tree_error as tree_error
from sfumato.study.error_bounds import tree_rows_needed as tree_rows_needed
from sfumato.study.experts import Experts as Experts
from sfumato.study.experts import HedgeRun as HedgeRun
from sfumato.study.experts import LearntAnswers as LearntAnswers
from sfumato.study.experts import Weights as Weights
from sfumato.study.experts import best_rate as best_rate
from sfumato.study.experts import hedge as hedge
from sfumato.study.experts import multiplicative_weights as multiplicative_weights
from sfumato.study.experts import weights_error as weights_error
from sfumato.study.experts import weights_rows_needed as weights_rows_needed
from sfumato.study.local_factorization import LocalFactorization as LocalFactorization
from sfumato.study.local_model import RandomizedResponse as RandomizedResponse
from sfumato.study.local_model import UnaryEncoding as UnaryEncoding
from sfumato.study.local_model import encode_table as encode_table
from sfumato.study.local_model import estimate_reports as estimate_reports
from sfumato.study.local_model import estimate_table as estimate_table
from sfumato.study.local_model import joint_response as joint_response
from sfumato.study.local_model import product_queries as product_queries
from sfumato.study.local_model import response_error as response_error
from sfumato.study.local_model import response_rows_needed as response_rows_needed
from sfumato.study.matrix_norms import FactorizationNorm as FactorizationNorm
from sfumato.study.matrix_norms import MatrixFactorization as MatrixFactorization
from sfumato.study.matrix_norms import (
    approximate_factorization_norm as approximate_factorization_norm,
)
from sfumato.study.matrix_norms import factorization_norm as factorization_norm
from sfumato.study.matrix_norms import factorize as factorize
from sfumato.study.projection_forecast import ProjectionForecast as ProjectionForecast
from sfumato.study.projection_forecast import forecast_projection as forecast_projection
from sfumato.study.reconstruction import ReconstructionTable as ReconstructionTable
from sfumato.study.reconstruction import reconstruct as reconstruct
from sfumato.study.reconstruction import reconstruction_table as reconstruction_table
from sfumato.study.simulated import MadeUp as MadeUp
from sfumato.study.simulated import measure_projection as measure_projection
from sfumato.study.simulated import simulated_noise as simulated_noise
from sfumato.study.supports import Separation as Separation
from sfumato.study.supports import separation_oracle as separation_oracle
from sfumato.study.supports import support_bound as support_bound
from sfumato.study.widths import Hull as Hull
from sfumato.study.widths import gaussian_width as gaussian_width
from sfumato.study.widths import mean_norm as mean_norm
from sfumato.study.widths import mean_width as mean_width
from sfumato.study.widths import projected_noise as projected_noise
from sfumato.study.widths import support as support
from sfumato.vault.count import Sensitive as Sensitive
from sfumato.vault.mechanisms.k_norm import KNorm as KNorm
from sfumato.vault.mechanisms.noise import discrete_laplace as discrete_laplace
from sfumato.vault.mechanisms.noise import rounded_gaussian as rounded_gaussian
from sfumato.vault.mechanisms.select import report_noisy_max as report_noisy_max
from sfumato.vault.mechanisms.sparse import Discoverer as Discoverer
from sfumato.vault.mechanisms.sparse import SparseVector as SparseVector

__all__: list[str]
