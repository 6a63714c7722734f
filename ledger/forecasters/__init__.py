"""Answers cells: built-in forecasters, each with the terms that explain it. Pure: no files, no git, no device."""
