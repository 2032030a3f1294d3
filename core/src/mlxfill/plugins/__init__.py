"""Finds plugins, switches them on, and calls their hooks.  Nothing else touches pluggy."""

from mlxfill.plugins.discovery import Catalogue, Claim, scan
from mlxfill.plugins.manager import PluginManager

__all__ = ["Catalogue", "Claim", "PluginManager", "scan"]
