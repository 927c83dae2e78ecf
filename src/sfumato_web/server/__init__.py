# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: thin, it calls the same functions as the command line and Python do.

config.py       what is served, to whom            server_limits.py how much one request may ask for
../app.py       the routes, and all that runs      middleware.py    every request passes it
responses.py    what was answered, and when        jobs.py          what is too long for one request
dataset.py      a table behind its ledger          problems.py      what a refusal looks like
scheduler.py    who works next, and the plans      batcher.py       questions, many in one commit
people.py       analysts who come and go           request_log.py   what happened, as lines of JSON
models.py       requests and answers as JSON       descriptions.py  descriptions and discoveries
"""
