# SPDX-License-Identifier: Apache-2.0
"""The bodies of the commands: read, call the library, show."""
