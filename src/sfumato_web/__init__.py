# SPDX-License-Identifier: Apache-2.0
"""The HTTP server, its web page and the learn pages. Needs the extra ``web``."""
