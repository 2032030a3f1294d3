"""``mlxfill plugins new``: the beginning of a plugin, as a distribution with tests."""
