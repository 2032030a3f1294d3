"""Offers what stood earlier, escaped: a third-party plugin for mlxfill."""
