# SPDX-License-Identifier: Apache-2.0
"""Properties see the same examples in every `make test`, and new ones in `make audit`."""

from __future__ import annotations

import os

from hypothesis import settings

# A plan must not depend on what an earlier run remembered; tests of the cache set a folder.
os.environ["SFUMATO_CACHE"] = "off"

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("new", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
