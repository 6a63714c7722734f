"""Judges evidence: what every measurement is held against, and what an audit says of it."""
