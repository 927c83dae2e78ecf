# SPDX-License-Identifier: Apache-2.0
"""After the noise: reconstruct, make answers agree, learn, bound, synthesize. Measurements only."""
