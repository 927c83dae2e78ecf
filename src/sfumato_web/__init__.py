# SPDX-License-Identifier: Apache-2.0
"""The HTTP server, its web page and the learn pages. Needs the extra ``web``.

app.py        routes, and how they are run           commands.py  `sfumato serve`, `sfumato token`
page/         the web page, which calls the server   server/      datasets, limits
learn/        what the learn pages compute
"""
