"""Caches that hold several sequences of different lengths, each rewound on its own."""
