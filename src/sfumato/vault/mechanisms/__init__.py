# SPDX-License-Identifier: Apache-2.0
"""What draws noise on exact data: measurements, selections, sparse vectors, searches. Private."""
