"""Check the packages' doors: what each offers, where to start, and that nobody goes past one.

A package's `__init__` has `__all__`, which names every public module below it, and a docstring that says where to
start.  A module or name that begins with an underscore is imported only within the package it belongs to.  Tests are
free to import what they test.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOTS = ("rt_core", "drivers", "sim_backend", "service", "thetad")
#: Lines of a package's docstring: fewer cannot say where to start.
MIN_LINES = 5


def main(root: Path) -> int:
    """Print what is wrong; return the exit code."""
    files = sorted(path for name in ROOTS for path in (root / name).rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    modules = {_module(path.relative_to(root)): path for path in files}
    wrong = [
        f"{path.relative_to(root)}: {problem}"
        for path, tree in trees.items()
        for problem in (
            *(_door(path, tree) if path.name == "__init__.py" else ()),
            *_trespasses(_module(path.relative_to(root)), path.name == "__init__.py", tree, modules),
        )
    ]
    print("\n".join(wrong) if wrong else f"{sum(path.name == '__init__.py' for path in files)} doors are in order")
    return bool(wrong)


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _door(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield what is wrong with a package's `__init__`."""
    text = ast.get_docstring(tree) or ""
    if len([line for line in text.splitlines() if line.strip()]) < MIN_LINES:
        yield f"the docstring does not say where to start ({MIN_LINES} lines)"
    names: list[str] | None = None
    bound = set()
    hidden = [node for each in tree.body if isinstance(each, ast.If) for node in each.body]  # for type checkers
    for node in [*tree.body, *hidden]:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound |= {target.id for target in targets if isinstance(target, ast.Name)}
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets) and node.value:
                names = list(ast.literal_eval(node.value))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            bound.add(node.name)
    if names is None:
        yield "no __all__"
        return
    below = {
        child.stem
        for child in path.parent.iterdir()
        if child.suffix == ".py" or (child.is_dir() and (child / "__init__.py").is_file())
    } - {"__init__"}
    yield from (f"__all__ does not name {name}" for name in sorted(below - set(names)) if not name.startswith("_"))
    yield from (f"__all__ names {name}, which is not there" for name in names if name not in below | bound)
    yield from (f"__all__ names {name}, which is internal" for name in names if name.startswith("_"))


def _trespasses(module: str, is_package: bool, tree: ast.Module, modules: dict[str, Path]) -> Iterator[str]:
    """Yield the imports of other packages' internals."""
    own = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            parts = target.split(".")
            if parts[0] not in ROOTS:
                continue
            for k, part in enumerate(parts):
                home = ".".join(parts[:k])
                if part.startswith("_") and not part.startswith("__"):
                    if modules.get(home, Path()).name != "__init__.py":  # a name of a module is its package's
                        home = home.rpartition(".")[0]
                    if own != home and not own.startswith(f"{home}."):
                        yield f"line {node.lineno}: imports {target}, which is internal to {home}"
                    break


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
