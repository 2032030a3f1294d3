"""The target model: loading it, and binding the engine to it without touching its code."""
