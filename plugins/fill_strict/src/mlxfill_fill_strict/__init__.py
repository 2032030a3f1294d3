"""Tool calls for mlxfill: what chat template and tool schemas fix is filled in."""

from mlxfill_fill_strict.compiled import compiled_rows
from mlxfill_fill_strict.rows import Kind, Row, RowSet
from mlxfill_fill_strict.settings import StrictSettings
from mlxfill_fill_strict.source import StrictSource

__all__ = ["Kind", "Row", "RowSet", "StrictSettings", "StrictSource", "compiled_rows"]
