"""``mlxfill demo``: the same replies decoded plainly and with plugins, side by side."""
