"""A plugin as users get it: found by its entry point, not called by its functions."""

from __future__ import annotations

from mlxfill import PluginManager, load_config


def registered_hooks(plugin: str) -> tuple[str, ...]:
    """The hooks that an installed plugin registers, in the order in which they fire.

    The plugin is found, loaded and checked as mlxfill itself does it; a function that forgot
    ``@mlxfill.hookimpl`` is none of its hooks.

    :param plugin: the name of its entry point.
    :raises PluginError: it is missing, broken, doubled, or has a function with the name of a hook
        and without the mark.
    """
    return PluginManager.load(load_config({}), [plugin]).hooks(plugin)
