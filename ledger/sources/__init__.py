"""Finds, lists and executes the source files that a kernel consists of, so that what is sealed is what runs."""
