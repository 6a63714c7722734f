"""Renders what was found: lines, pages, cards and plots."""
