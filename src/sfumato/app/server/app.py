# SPDX-License-Identifier: Apache-2.0
"""The application: the routes behind the gate, its OpenAPI document, and how it is run."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from sfumato.app.server.config import Config
from sfumato.app.server.gate import OPEN_PATHS, Gate
from sfumato.app.server.house import House
from sfumato.app.server.problems import Problem
from sfumato.app.server.routes import routes
from sfumato.version import VERSION

__all__ = ["make_app", "run"]

_FAULTS = 8  # that one message lists


def make_app(house: House) -> FastAPI:
    """The ASGI application of a house; the caller closes the house."""
    app = FastAPI(
        title="sfumato",
        version=VERSION,
        description="Private answers to linear queries. TLS is the reverse proxy's.",
        docs_url=None,
        redoc_url=None,
        exception_handlers={HTTPException: _refused, RequestValidationError: _not_valid},
    )
    app.state.house = house
    app.include_router(routes)
    app.add_middleware(Gate, house=house)
    _describe(app)
    return app


def run(config: Config) -> None:
    """Serve until interrupted."""
    import uvicorn

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    house = House(config)
    app = make_app(house)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        house.close()

    app.router.lifespan_context = life
    uvicorn.run(
        app,
        host=config.host,
        port=config.port,
        access_log=False,
        server_header=False,
        date_header=False,
        log_config=None,
        timeout_keep_alive=30,
    )


def _reply(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, "application/json")


async def _refused(_: Request, error: Exception) -> Response:
    """Unknown routes and methods, and bodies that are no JSON, in the words of the server."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {
        404: ("not-found", "there is no such route; GET /openapi.json lists them"),
        405: ("method", "this route has another method; GET /openapi.json lists them"),
    }
    if status in words:
        headers = dict(getattr(error, "headers", None) or {})
        return _reply(Problem(status, *words[status], headers=headers))
    return _reply(Problem(422, "request", "the body is not JSON that can be read; check it"))


async def _not_valid(_: Request, error: Exception) -> Response:
    """What is wrong with a request, place by place; it says nothing of the data."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    faults = [f"{'.'.join(str(p)[:64] for p in f['loc'])}: {f['msg'][:200]}" for f in found]
    more = [] if len(faults) <= _FAULTS else [f"and {len(faults) - _FAULTS} more"]
    return _reply(Problem(422, "request", "; ".join([*faults[:_FAULTS], *more])))


def _describe(app: FastAPI) -> None:
    """Say in the OpenAPI document that a token is needed."""
    made = app.openapi

    def described() -> dict[str, Any]:
        document = made()
        parts = document.setdefault("components", {})
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation["security"] = [] if path in OPEN_PATHS else [{"token": []}]
        return document

    app.openapi = described  # type: ignore[method-assign]
