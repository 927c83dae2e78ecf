# SPDX-License-Identifier: Apache-2.0
"""The web page of ``sfumato serve``: for people who write no Python. Needs the extra ``web``.

It calls the same functions as the JSON routes do and holds no data of its own. Everything is under
``/page``, served from this process, and works without a network.

auth.py         every request of a browser: cookie, origin, rates, headers; who is signed in
start.py        puts the page on the application   layout.py        the frame, how things are shown
plan_page.py    see the error before you spend     release_page.py  answers, charts, files
ask_page.py     one question at a time             ledger_page.py   what was spent
assets/         style and the script of charts     ../learn/        one page per idea

**How a page is written.** A module has ``register()``, which ``start.py`` calls, and in it::

    @page("/ask", "Ask", "One question at a time.")         # path, title, lead
    async def _ask(visitor: Visitor) -> None:               # may be async; the frame is there
        with card("Your question", "in SQL"):               # a panel with a heading
            text = ui.textarea("SQL").props("aria-label=SQL")
            answer = ui.element("div").classes("stack").props("aria-live=polite")

            async def estimate() -> None:
                with showing_refusals(answer, clear=True):  # refusals appear in this place
                    forecast = await visitor.work(dataset.batcher.forecast, text.value)
                    facts([("Value", "1,234", "between 1,200 and 1,268")])
                    Chart(altair_chart, "what a screen reader says of it")

            ui.button("What would it cost?", on_click=estimate)

* ``visitor.who`` is the signed-in ``Analyst``; ``visitor.datasets`` are theirs, ``visitor.dataset(
  name)`` one of them. ``visitor.check()`` begins every action (login still holds, rate kept);
  ``await visitor.work(f, ...)`` does it and runs ``f`` in a worker of the server. Answers that
  touched data wait for ``await visitor.on_grid(arrived)``, as over HTTP.
* Sub-pages: ``@page("/learn/tree", "The tree", at="Learn")``. Parameters of a path such as
  ``/release/{name}`` are in ``visitor.request.path_params``.
* Shown by ``layout``: ``card``, ``facts``, ``table``, ``paragraph`` (kinds note, lead,
  promise, warning), ``empty`` (nothing there yet), ``trouble`` (a refusal), ``showing_refusals``
  (catches them).
  Numbers: ``sfumato.cli.output.counts``. All texts are escaped there; never pass user text to
  ``ui.html`` or ``ui.markdown`` yourself.
* Layout classes (style.css): split (5:7), halves, stack, stack loose, line, line apart, grow. They
  fold at 960 px and 736 px. Colours are the variables --ink --soft --line --panel --accent --wash.
* Charts: ``Chart(drawn, label)`` takes Altair charts made with ``width="container"``;
  ``.show(drawn, label)`` draws another one in the same place without a flicker. Leave colours of
  text and axes out, the page gives them for light and dark.
* Every control has a visible label or an aria-label; what changes by itself stands in an
  ``aria-live=polite`` place. NiceGUI runs without Tailwind: use the classes above.
* Tests: ``tests/page`` has a server and a browser (``browser_page``) that fail on console errors
  and on requests to other hosts; ``check_accessible(page)`` runs axe.
"""
