# SPDX-License-Identifier: Apache-2.0
"""After the noise: reconstruct, project, synthesize. Public; sees measurements only."""
