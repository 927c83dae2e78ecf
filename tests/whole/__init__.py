"""Tests of the whole: names, documents, sizes, what a person may call."""
