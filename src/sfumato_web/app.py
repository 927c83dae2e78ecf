# SPDX-License-Identifier: Apache-2.0
"""The application: the routes inside the middleware, its OpenAPI document, and how it is run."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from sfumato.version import VERSION
from sfumato_web.server.config import Config
from sfumato_web.server.middleware import OPEN_PATHS, RequestMiddleware
from sfumato_web.server.models import AskAsked, PlanAsked, ReleaseAsked
from sfumato_web.server.problems import Problem, not_valid, problem_of
from sfumato_web.server.routes import BUSY, routes
from sfumato_web.server.state import ServerState

__all__ = [
    "make_app",
    "run",
    "settings",
]


def make_app(server: ServerState, *, closes: bool = False, page: bool = False) -> RequestMiddleware:
    """The ASGI application of a server; with ``closes`` it closes the server when it is shut down.

    With ``page`` it has the web page, too, which a process can have once.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        if closes:
            server.close()

    app = FastAPI(
        title="sfumato",
        version=VERSION,
        description="Private answers to linear queries. TLS is the reverse proxy's.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
        exception_handlers={
            HTTPException: _refused,
            RequestValidationError: _not_valid,
            Exception: _other,
        },
    )
    app.include_router(routes)
    _describe(app)
    page_app = None
    if page:
        from sfumato_web.page.start import open_page

        page_app = open_page(app, server)
    return RequestMiddleware(app, server, BUSY, page_app)


def run(config: Config, say: Callable[[], None]) -> None:
    """Serve until interrupted; then finish what is under way and put the sessions to rest.

    ``say`` is called when everything is open.
    """
    import uvicorn

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    app = make_app(ServerState(config), closes=True, page=config.page)
    # What is loaded by now stays: without this, looking through it for garbage stops all answers
    # for a tenth of a second now and then.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    say()
    uvicorn.run(app, **settings(config))


def settings(config: Config) -> dict[str, Any]:
    """How uvicorn is run: what it may say, and how long it waits for whom."""
    from sfumato_web.server.middleware import connection_class

    return {
        "host": config.host,
        "port": config.port,
        "http": connection_class(config.limits),
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "log_config": None,
        "timeout_keep_alive": 30,
        "proxy_headers": False,  # nothing depends on the caller's address
        "lifespan": "on",
        "ws": "websockets-sansio" if config.page else "none",
        "ws_max_size": config.limits.body_bytes,
    }


def _reply(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, "application/json")


async def _other(_: Request, error: Exception) -> Response:
    """The refusal for an exception, which the framework raises again for the middleware."""
    return _reply(problem_of(error))


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
    return _reply(not_valid(error.errors() if isinstance(error, RequestValidationError) else []))


def _describe(app: FastAPI) -> None:
    """Say in the OpenAPI document that a token is needed."""
    made = app.openapi

    def described() -> dict[str, Any]:
        document = made()
        parts = document.setdefault("components", {})
        for model in (
            AskAsked,
            PlanAsked,
            ReleaseAsked,
        ):  # of the routes that read their bodies by hand
            made_of = model.model_json_schema(ref_template="#/components/schemas/{model}")
            parts["schemas"] |= {**made_of.pop("$defs", {}), model.__name__: made_of}
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation["security"] = [] if path in OPEN_PATHS else [{"token": []}]
        return document

    app.openapi = described  # type: ignore[method-assign]
