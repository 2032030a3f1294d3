"""Rows of a drafter, played without a model that writes."""
