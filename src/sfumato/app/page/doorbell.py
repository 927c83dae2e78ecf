# SPDX-License-Identifier: Apache-2.0
"""The login: a plain form that needs no script."""

from __future__ import annotations

from html import escape

__all__ = ["login_page"]


def login_page(after: str, is_wrong: bool = False) -> str:
    """The form; ``after`` is where a known token leads."""
    wrong = (
        '<p class="trouble" role="alert" id="wrong">Nobody holds this token. Copy it whole, from '
        "<code>sfu_</code> to its end, or ask your curator for a new one.</p>"
        if is_wrong
        else ""
    )
    said = ' aria-describedby="wrong" aria-invalid="true"' if is_wrong else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign in · sfumato</title>
<link rel="stylesheet" href="/page/assets/style.css">
<link rel="icon" href="/page/favicon.ico">
</head>
<body class="plain">
<main class="door">
<h1 class="mark">sfumato</h1>
<p class="lead">Private answers, as sharp as mathematics allows.</p>
<form method="post" action="/page/login?next={escape(after, quote=True)}">
{wrong}
<label for="token">Your token</label>
<input id="token" name="token" type="password" required autofocus autocomplete="current-password"
 maxlength="200" spellcheck="false"{said}>
<button type="submit">Sign in</button>
</form>
<p class="note">Tokens come from the curator of the server. Yours is exchanged for a cookie that
ends after half an hour without use; it is kept nowhere.</p>
</main>
</body>
</html>
"""
