# SPDX-License-Identifier: Apache-2.0
"""What a record may look like: attributes, bins, the schema file. Public; sees no data."""

from sfumato.domain import discovery as discovery  # what is still to be discovered: `OPEN_KINDS`
