"""Every error that mlxfill raises on purpose.

Each message is one line that names the value at fault and the remedy, so that the
CLI can print it as it is.  Errors about a value also are ``ValueError``s, errors
about a missing file also are ``FileNotFoundError``s: callers who know Python need
not know this module.
"""


class MlxfillError(Exception):
    """Base of all errors of mlxfill.

    ``on_every_rank``: all ranks that share the model raise this very error, so that one may speak
    for all of them.
    """

    on_every_rank = False


class InputError(MlxfillError, ValueError):
    """A value given by the caller is not legal; the message names value and legal range."""


class ConfigError(MlxfillError, ValueError):
    """A config file, environment override or setting is not legal; names file and key."""


class PluginError(MlxfillError):
    """A plugin that the config names is missing, broken or doubled; names the remedy."""


class BackendMissingError(MlxfillError, ImportError):
    """mlx is installed without a backend (Linux wheel); names the extra to install."""


class ModelError(MlxfillError, ValueError):
    """A model cannot be loaded or bound; names the file, tensor or architecture."""


class ModelNotFoundError(ModelError, FileNotFoundError):
    """No model under this name or path; names what was looked for and where."""


class TemplateError(MlxfillError, ValueError):
    """The chat template is missing, broken or refused the messages."""


class DrafterError(MlxfillError, ValueError):
    """A drafter does not fit the target; names both sides."""


class CacheMismatchError(MlxfillError, ValueError):
    """A prewarmed cache is no strict prefix of the prompt, or its length is unknown."""


class CheckpointError(MlxfillError, ValueError):
    """A checkpoint is missing, damaged, foreign, in use, or of another model; it stays as it is."""


def shown(value: object, most: int = 80) -> str:
    """A value on one line of at most ``most`` characters, as messages name it."""
    line = " ".join(repr(value).split())  # an array is shown in lines
    return line if len(line) <= most else f"{line[: most - 3]}..."


def reason(error: BaseException, most: int = 400) -> str:
    """What someone else's exception says, on one line of at most ``most`` characters."""
    return " ".join(str(error).split())[:most] or type(error).__name__
