"""Reads and writes a ledger in a git repository: records, seals, commits, clones."""
