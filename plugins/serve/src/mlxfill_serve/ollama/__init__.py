"""Ollama's API, as a translation around chat completions: lines of JSON instead of events."""
