"""Generations that survive a crash: what a checkpoint holds, its file, and going on from it."""
