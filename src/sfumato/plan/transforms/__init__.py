# SPDX-License-Identifier: Apache-2.0
"""Fixed families of strategies and their weights: trees, wavelets, characters, templates."""
