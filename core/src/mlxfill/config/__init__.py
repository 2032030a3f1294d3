"""What the user settled in a file, in the environment, or by default.

``load_config`` finds and checks it, ``examine_config`` tells every mistake; ``Config`` holds it,
typed and frozen::

    load           the way from file and environment to a ``Config``
    location       which file it is; environment: overrides; document: both laid over each other
    structure      tables to attrs classes, with every mistake on the way (annotations: in words)
    sections       the tables as classes; show: every value with its place
"""

from mlxfill.config.load import examine_config, load_config
from mlxfill.config.sections import Config, Gate, Generation, Plugins, Trust

__all__ = ["Config", "Gate", "Generation", "Plugins", "Trust", "examine_config", "load_config"]
