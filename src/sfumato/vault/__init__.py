# SPDX-License-Identifier: Apache-2.0
"""The only room with exact data: tables and engines, counting, noise, measuring. Private."""
