"""Mutation testing: which small changes to a module do its tests not notice?

::

    pip install cosmic-ray
    python tools/mutation.py --sample 60 MODULE TESTS...

Mutants are cosmic-ray's.  Each is tried in a forked process that imports the changed source in
place of the module: no file is touched.  Changes to annotations and docstrings are left out.
Prints each survivor as a diff and ends with the share that was killed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

LIMIT_S = 120
"""Seconds after which a mutant counts as killed: it hangs."""
WARM = ("pytest", "hypothesis", "numpy", "transformers", "tokenizers", "jinja2", "cattrs", "typer")
"""Imported once, before the forks.  Nothing of mlx: its threads would not survive one."""


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module in a changed source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """The module, if it is the one."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        exec(compile(self.source, self.path, "exec"), vars(module))  # noqa: S102


class Bare(ast.NodeTransformer):
    """Leaves out what a test cannot notice: annotations and docstrings."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Without its annotation."""
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Without its annotation."""
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Without the annotation of its result."""
        node.returns = None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Unless it is a string."""
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


def bare(source: str) -> str:
    """What counts of a source."""
    return ast.dump(Bare().visit(ast.parse(source)))


def mutants(source: str) -> Iterator[str]:
    """Changed sources."""
    plain = bare(source)
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():
            continue
        for occurrence in count():
            changed = mutate_code(source, kind(), occurrence)
            if changed is None:
                break
            if bare(changed) != plain:
                yield changed


def survives(module: str, path: Path, source: str, tests: Sequence[str]) -> bool:
    """Whether the tests pass with the changed source."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    import pytest

    signal.alarm(LIMIT_S)
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.meta_path.insert(0, Changed(module, path, source))
    quiet = [
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    os._exit(int(pytest.main([*quiet, *tests])) != 0)


def module_name(path: Path) -> str:
    """The dotted name of a file below a ``src`` folder."""
    parts = path.with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :])


def main() -> int:
    """Try the mutants of a module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--sample", type=int, help="try so many, chosen by chance but always alike")
    given = parser.parse_args()
    for name in WARM:
        importlib.import_module(name)
    source, module = given.module.read_text("utf-8"), module_name(given.module)
    tried = sorted(mutants(source))
    if given.sample is not None and given.sample < len(tried):
        tried = random.Random(1).sample(tried, given.sample)  # noqa: S311
    if not survives(module, given.module, source, given.tests):
        print("the tests fail without any change")  # noqa: T201
        return 2
    lived = 0
    for changed in tried:
        if survives(module, given.module, changed, given.tests):
            lived += 1
            lines = difflib.unified_diff(
                source.splitlines(), changed.splitlines(), n=0, lineterm=""
            )
            print(*list(lines)[2:], sep="\n", flush=True)  # noqa: T201
    share = 100 * (1 - lived / max(len(tried), 1))
    print(f"{module}: {len(tried)} mutants, {lived} survived, {share:.1f} % killed")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
