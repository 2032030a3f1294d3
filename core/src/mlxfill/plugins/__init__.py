"""Finds plugins, switches them on, and calls their hooks.  Nothing else touches pluggy.

From what is installed to an answer that can be relied on::

    discovery    entry points, read without importing anything
    advice       what to do about one that is not there
    authored     where to mend a plugin that is being written
    manager      which plugins are on, in which order, with which settings
    hooks        every hook as a typed method
    registry     pluggy: who implements a hook, by priority
    answers      what a hook returned, checked
    faults       what a plugin did wrong, in one line
"""

from mlxfill.plugins.discovery import Catalogue, Claim, installed_plugin, scan
from mlxfill.plugins.manager import PluginManager

__all__ = ["Catalogue", "Claim", "PluginManager", "installed_plugin", "scan"]
