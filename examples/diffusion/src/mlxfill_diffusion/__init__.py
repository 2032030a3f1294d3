"""Text by iterative unmasking (masked diffusion), as a plugin for mlxfill."""
