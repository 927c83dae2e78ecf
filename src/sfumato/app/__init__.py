# SPDX-License-Identifier: Apache-2.0
"""The command line: thin, it calls the same functions as Python does."""
