"""Measures the cells of an order on the nodes of a Ray cluster."""
