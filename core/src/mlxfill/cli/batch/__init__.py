"""``mlxfill generate --batch``: many requests from a file, their answers in another."""
