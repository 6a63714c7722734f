"""Renders reports, pages, cards and plots."""
