# SPDX-License-Identifier: Apache-2.0
"""Connections before there is a request: the head of one is bounded in bytes and in time.

Nobody has shown a token yet, so whatever is held or done here is done for anybody. A head that is
larger than ``header_bytes`` gets 431; one that is not whole after ``header_seconds`` (since the
connection was made, or since its first byte on one that is kept alive) is closed without a word.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from sfumato.app.server.limits import Limits

__all__ = ["connection_class"]


class _TooLarge(Exception):
    """The head of a request has more bytes than it may."""


class _Connection(HttpToolsProtocol):
    """A connection whose heads are bounded; ``limits`` is set by ``connection_class``."""

    limits: Limits
    _arrived = 0  # bytes of this request that are none of its body
    _read = 0  # bytes of its path and headers
    _begins_with = 0  # bytes that came at once with the first of a request
    _is_in_head = True
    _is_between = True  # before the first byte of a request
    _is_too_large = False
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; refuse a head that grows too large."""
        self._begins_with = len(data) if self._is_between else 0
        self._arrived += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self.parser is None:
            return
        # Between the parts of a body stand their lengths, and after the last one more headers.
        most = self.limits.header_bytes + (0 if self._is_in_head else 8 * self.limits.body_bytes)
        if self._arrived > most:
            self._refuse()
        elif self._is_in_head and self._patience is None:
            self._wait()

    def on_message_begin(self) -> None:
        """The head of the next request."""
        # Of one that begins in the middle of what came, the rest of it is not counted here.
        self._arrived, self._read, self._begins_with = self._begins_with, 0, 0
        self._is_in_head, self._is_between = True, False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the path."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_head = False
        self._wait_no_more()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body, whose size is the gate's to limit."""
        self._arrived -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._is_between = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read; 431 where there was too much of it."""
        if self._is_too_large:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        self._read += size
        if self._read > self.limits.header_bytes:
            self._is_too_large = True
            raise _TooLarge  # the parser stops, and send_400_response is called

    def _refuse(self) -> None:
        most = self.limits.header_bytes
        words = f"the headers of a request may have at most {most:,} bytes; send fewer"
        body = json.dumps({"error": "too-large", "message": words}).encode()
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\n"
            "content-type: application/json\r\ncache-control: no-store\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._wait_no_more()
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _wait(self) -> None:
        self._patience = self.loop.call_later(self.limits.header_seconds, self._give_up)

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        """Close, unless an earlier request of this connection is still being answered."""
        self._patience = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()
        elif self._is_in_head and not self.transport.is_closing():
            self.transport.close()


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol of connections under these limits, for uvicorn."""
    named: dict[str, Any] = {"limits": limits}
    return type("Connection", (_Connection,), named)
