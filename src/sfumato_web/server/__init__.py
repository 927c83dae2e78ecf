# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: thin, it calls the same functions as the command line and Python do.

config.py       what is served, to whom            server_limits.py how much one request may ask for
tokens.py       who is asking                      middleware.py    every request passes it
responses.py    what was answered, and when        ../app.py        the routes, and all that runs
dataset.py      a table behind its ledger          problems.py      what a refusal looks like
scheduler.py    who works next, and the plans      batcher.py       questions, many in one commit
models.py       what requests and answers look like, and public numbers as JSON
"""
