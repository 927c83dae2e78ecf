# SPDX-License-Identifier: Apache-2.0
"""The words of the six ideas."""

from __future__ import annotations

from typing import Final

from sfumato.app.page.learn.frame import Idea

__all__ = ["HULL", "IDEAS", "REPEATED", "STREAM", "THREE_WAYS", "TREE", "WEIGHTS"]

THREE_WAYS: Final = Idea(
    "three-ways",
    "Three ways to count",
    "Noise on the answers, on the table, or at the source: which one errs least?",
    (
        "Somebody asks many counting questions about one table. The noise can go on each answer, "
        "on each cell of the table from which all answers are then summed, or on each person's own "
        "record before it is handed in.",
        "Noise on the answers must hide a person in all of them at once, so it grows with their "
        "number. Noise on the table does not care how many questions there are, but a question "
        "adds up the noise of its cells. Noise at the source needs no trusted curator and pays "
        "for that: every record is blurred.",
    ),
    ("laplace", "contingency-table", "randomized-response"),
    "Y.-X. Wang, Sparse vector technique and linear query release",
)

REPEATED: Final = Idea(
    "repeated",
    "The same question twice",
    "Measure once and copy the answer: the smallest factorization there is.",
    (
        "If one question is asked many times, a fresh noisy answer each time shares the budget out "
        "among copies of the same thing. It is better to spend all of it on one measurement and to "
        "give that answer every time.",
        "Written as matrices, the questions F are split into what is measured, M, and how answers "
        "are read off from it, R. Only M needs noise. A planner looks for the best such split of "
        "any set of questions; this one is so simple that it can be seen.",
    ),
    ("factorization", "gaussian"),
    "A. Smith and J. Ullman, lecture notes on factorization and projection",
)

TREE: Final = Idea(
    "tree",
    "The tree on eight cells",
    "Sums of neighbours, so that every range is the sum of a few noisy numbers.",
    (
        "How many records lie between two cells? From noisy counts of single cells, a long range "
        "adds up much noise. A tree also measures the sums of pairs, of fours and of all eight, so "
        "that few nodes make up any range.",
        "Nothing is free: a person is now in four of the measured numbers, and each of them needs "
        "four times the noise. Click on a node, or move the ends of the range, and see which nodes "
        "are added.",
    ),
    ("binary-tree", "wavelet", "streams"),
    "G. Brown, Linear queries and the binary tree mechanism",
)

HULL: Final = Idea(
    "projection",
    "Projection in two dimensions",
    "Answers that no data set can have are moved to the nearest possible ones.",
    (
        "Each kind of record answers two questions with a pair of numbers: a point. Any data set "
        "answers with an average of such points, so its answer lies in the polygon between them. "
        "Noise may carry it out.",
        "The polygon is public, so the noisy point may be moved to the nearest point of it without "
        "another look at the data. That costs no privacy and never leads away from the truth. With "
        "hundreds of questions the polygon is flat in most directions, and the gain is large.",
    ),
    ("projection", "widths", "relaxations"),
    "A. Nikolov, Projection mechanism",
)

STREAM: Final = Idea(
    "sparse-vector",
    "Sparse vector on a stream",
    "Test as often as you like; pay only for what is found above the threshold.",
    (
        "A count comes in every day, and the question is whether it is unusual. To publish a noisy "
        "count each day would use up the budget within a week.",
        "Sparse vector says only above or below. It hides the threshold behind noise once, each "
        "count behind fresh noise, and it can be shown that being found below reveals next to "
        "nothing: the budget is charged for what is found above, and for the threshold. After a "
        "fixed number of discoveries it stops.",
    ),
    ("sparse-vector", "online"),
    "Y.-X. Wang, Sparse vector technique and linear query release",
)

WEIGHTS: Final = Idea(
    "weights",
    "Multiplicative weights",
    "A public guess of the histogram that learns from its mistakes, question by question.",
    (
        "Begin with a guess that all cells are equally full. For each question, sparse vector "
        "tests whether the guess answers it well enough. If so, that is the answer, for nothing.",
        "If not, a noisy answer is paid for, and the guess learns from it: the weights of the "
        "cells in question are multiplied up or down. A guess can be badly wrong only so many "
        "times, so almost all questions of a long list are free. This is how a session answers "
        "on the page Ask.",
    ),
    ("online", "mwem"),
    "Y.-X. Wang, Sparse vector technique and linear query release",
)

IDEAS: Final = (THREE_WAYS, REPEATED, TREE, HULL, STREAM, WEIGHTS)
