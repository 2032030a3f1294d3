"""``mlxfill doctor``: what is installed, what it runs on, and what stands in the way."""
