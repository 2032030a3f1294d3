"""Generations that survive a crash: what a checkpoint holds, its file, and who writes it when."""
