# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: thin, it calls the same functions as the command line and Python do.

config.py     what is served, to whom             limits.py     how much one request may ask for
tokens.py     who is asking                       gate.py       every request passes it
routes.py     the table of contents               grid.py       when answers leave
house.py      all that a running server holds     guarded.py    a table behind its ledger
scheduler.py  who works next                      connections.py heads of requests, bounded
asking.py     questions, many in one commit       shelf.py      what was answered, by key
planning.py   the plan of a request               newest.py     the newest few of a kind
models.py     what requests and answers look like documents.py  public numbers as JSON
problems.py   what a refusal looks like           metrics.py    counters for Prometheus
app.py        the application, and how it is run  commands.py   `sfumato serve`, `sfumato token`
"""
