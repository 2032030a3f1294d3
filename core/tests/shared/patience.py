"""How long tests wait for what must happen: longer than any machine takes, however busy it is."""

AT_ALL = 600
"""Seconds."""
