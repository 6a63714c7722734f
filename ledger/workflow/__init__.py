"""Carries out what a command asks for: one verb a module."""
