"""Holds the rules and the arithmetic: forecasts, regimes, gaps, scores. Pure: no files, no git, no device."""
