"""Taking prompt caches back to an earlier token of the newest window."""
