"""Mutation testing: which small changes to a module do its tests not notice?

::

    pip install cosmic-ray
    python tools/mutation.py MODULE TESTS...

Mutants are cosmic-ray's.  Each is tried in a forked process that imports the changed source in
place of the module: no file is touched.  Changes to annotations and docstrings are left out.
Prints each survivor as a diff and ends with the share that was killed, of all and of those that
differ: ``equivalent.toml`` names the others and says why nobody can tell them from the original.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

SLOWER, LEAST_S = 5, 10
"""A mutant that takes so many times as long as no mutant, and so many seconds, counts as killed."""
LATE = ("mlx_lm", "transformers", "tokenizers", "safetensors.numpy")
"""What tests import while they run.  Nothing may be computed before a fork: the threads that mlx
computes in would not survive it."""
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
QUIET = ("-q", "-x", "--assert=plain", "--tb=no", "-p", "no:cacheprovider")


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
    """Leaves out what no test can notice: annotations, docstrings, imports for type checkers."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Without its annotation."""
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Without its annotation."""
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """Whatever may be named: cosmic-ray takes the bare * of a signature for an operator."""
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults += [each for each in node.kw_defaults if each]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Without the annotation of its result."""
        node.returns = None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Unless it is a string."""
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Unless it is for type checkers."""
        only_types = "TYPE_CHECKING" in ast.unparse(node.test)
        return None if only_types else self.generic_visit(node)


def bare(source: str) -> str:
    """What counts of a source."""
    return ast.dump(Bare().visit(ast.parse(source)))


def mutants(source: str) -> Iterator[str]:
    """Changed sources that Python can read."""
    plain = bare(source)
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():
            continue
        for occurrence in count():
            changed = mutate_code(source, kind(), occurrence)
            if changed is None:
                break
            try:
                if bare(changed) != plain:
                    yield changed
            except SyntaxError:
                continue


def warm_up(tests: Sequence[str]) -> None:
    """Import once what the tests import, so that no mutant has to wait for it."""
    for name in LATE:
        importlib.import_module(name)
    pytest.main([*QUIET, "--collect-only", "--no-header", "--no-summary", "-q", "-q", *tests])
    gc.freeze()  # pytest collects garbage at each end: not among all these


def forget_our_own() -> None:
    """Have the project's modules and tests imported anew."""
    here, installed = str(Path.cwd()) + os.sep, sys.prefix + os.sep  # .venv/ may lie in here
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name != "__main__" and file.startswith(here) and not file.startswith(installed):
            del sys.modules[name]


def survives(module: str, path: Path, source: str, tests: Sequence[str], limit_s: float) -> bool:
    """Whether the tests pass with the changed source, in time."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    failed = True
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        forget_our_own()
        sys.meta_path.insert(0, Changed(module, path, source))
        failed = pytest.main([*QUIET, *tests]) != 0
    finally:
        os._exit(failed)


def module_name(path: Path) -> str:
    """The dotted name of a file below a ``src`` folder."""
    parts = path.with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :])


def difference(source: str, changed: str) -> tuple[str, str]:
    """The lines that were changed and what they became, without indentation."""
    lines = list(difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0))[3:]
    old, new = ("\n".join(x[1:].strip() for x in lines if x[0] == sign) for sign in "-+")
    return old, new


def equivalents(module: str) -> set[tuple[str, str]]:
    """The differences that are none."""
    known = tomllib.loads(EQUIVALENT.read_text("utf-8")).get(module, [])
    return {(each["line"], new) for each in known for new in each["becomes"]}


def main() -> int:
    """Try the mutants of a module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--sample", type=int, help="try so many, chosen by chance but always alike")
    parser.add_argument("--only", default="", help="try changes of lines that hold this text")
    given = parser.parse_args()
    source, module = given.module.read_text("utf-8"), module_name(given.module)
    tried = sorted(m for m in set(mutants(source)) if given.only in difference(source, m)[0])
    if given.sample is not None and given.sample < len(tried):
        tried = random.Random(1).sample(tried, given.sample)  # noqa: S311
    warm_up(given.tests)
    started = time.monotonic()
    if not survives(module, given.module, source, given.tests, 3600):
        print("the tests fail without any change")  # noqa: T201
        return 2
    limit_s = LEAST_S + SLOWER * (time.monotonic() - started)
    known, same, lived = equivalents(module), 0, 0
    for changed in tried:
        if not survives(module, given.module, changed, given.tests, limit_s):
            continue
        old, new = difference(source, changed)
        if (old, new) in known:
            same += 1
            continue
        lived += 1
        print(f"- {old}\n+ {new}", flush=True)  # noqa: T201
    if not survives(module, given.module, source, given.tests, limit_s):
        print("the tests fail without any change by now: something else was changed")  # noqa: T201
        return 2
    print(summary(module, len(tried), lived, same))  # noqa: T201
    return 0


def summary(module: str, tried: int, lived: int, same: int) -> str:
    """The last line."""
    killed, differ = tried - lived - same, tried - same
    return (
        f"{module}: {tried} mutants, {killed} killed, {lived} survived, {same} equivalent: "
        f"{100 * killed / max(differ, 1):.1f} % of those that differ, "
        f"{100 * killed / max(tried, 1):.1f} % of all"
    )


if __name__ == "__main__":
    sys.exit(main())
