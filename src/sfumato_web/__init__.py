# SPDX-License-Identifier: Apache-2.0
"""The HTTP server, its web page and the learn pages. Needs the extra ``web``.

app.py        the application, and how it is run     commands.py  `sfumato serve`, `sfumato token`
page/         the web page, which calls the server   server/      routes, datasets, limits
learn/        what the learn pages compute
"""
