"""Tool calls: the form in which each model writes them, and how they are read.

::

    sections  what in a reply is thought, said and called; read: the calls in a part of it
    form      the pieces of a call, for grammars
    probe     asks a chat template; ways: how calls are put to it; rendering: applies it
    history   the calls of earlier turns, as the chat template takes them
    messages, tools  what messages and tools of a request must be
    formats   which form a model's calls have, where mlx-lm does not know it
    readers   reading each form; literals: arguments in Python's syntax; jsontext: in JSON
"""

from mlxfill.tool_calls.form import CallForm, ValueForm, call_form
from mlxfill.tool_calls.probe import CallProbe
from mlxfill.tool_calls.read import read_calls
from mlxfill.tool_calls.sections import ReplySections
from mlxfill.tool_calls.ways import CallWay

__all__ = [
    "CallForm",
    "CallProbe",
    "CallWay",
    "ReplySections",
    "ValueForm",
    "call_form",
    "read_calls",
]
