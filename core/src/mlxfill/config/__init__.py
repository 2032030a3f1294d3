"""What the user settled in a file, in the environment, or by default.

``load_config`` finds and checks it, ``examine_config`` tells every mistake; ``Config`` holds it,
typed and frozen.
"""

from mlxfill.config.load import examine_config, load_config
from mlxfill.config.sections import Config, Gate, Generation, Plugins, Trust

__all__ = ["Config", "Gate", "Generation", "Plugins", "Trust", "examine_config", "load_config"]
