# SPDX-License-Identifier: Apache-2.0
"""sfumato_web.page"""
