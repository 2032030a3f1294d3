"""For authors of plugins: tiny models of every cache kind, and drafters that are right or wrong."""
