"""Sessions that a source is played in, without a model."""
