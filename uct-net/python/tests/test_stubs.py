"""The stubs have the names that the package has, and the package those that the stubs have."""

import ast
import inspect
import unittest
from pathlib import Path

import uct
from uct import aio, errors


def classes(module):
    """The classes of a stub, and the names in each."""
    stub = Path(module.__file__).with_suffix(".pyi")
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef) and hasattr(module, node.name):
            items = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AnnAssign))]
            yield node.name, {item.name if isinstance(item, ast.FunctionDef) else item.target.id for item in items}


class Stubs(unittest.TestCase):
    def test_names_are_the_same(self):
        for module in (uct, aio, errors):
            found = dict(classes(module))
            defined = {name for name in getattr(module, "__all__", found) if isinstance(getattr(module, name), type)}
            self.assertEqual(defined - {"Error", "Closed", "TimedOut"} - set(found), set(), module)
            for name, names in found.items():
                if module is errors or name == "Operation":
                    continue
                own = {key for key in vars(getattr(module, name)) if not key.startswith("_")}
                public = {key for key in names if not key.startswith("_")}
                self.assertEqual(own, public, f"{module.__name__}.{name}")
                for special in names - public - {"__init__"}:
                    self.assertTrue(hasattr(getattr(module, name), special), f"{name}.{special}")

    def test_signatures_can_be_read(self):
        for module in (uct, aio):
            for kind in (getattr(module, name) for name in dict(classes(module))):
                for name, call in vars(kind).items():
                    if callable(call) and not name.startswith("_"):
                        self.assertNotIn("...", str(inspect.signature(call)), f"{module.__name__}.{name}")
        own = inspect.signature(uct.Connection.close).parameters["timeout"].default
        self.assertEqual((own, inspect.signature(uct.Net.close).parameters["timeout"].default), (5.0, 1.0))
        settings = next(node for node in ast.walk(ast.parse(Path(uct.__file__).with_suffix(".pyi").read_text()))
                        if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        for setting in settings.args.kwonlyargs:
            self.assertIn(f"`{setting.arg}`", uct.Net.__doc__)

    def test_both_modules_have_the_same_calls(self):
        for name in ("Net", "Listener", "Connection"):
            ours, theirs = ({key for key in vars(getattr(module, name)) if key[0] != "_"} for module in (uct, aio))
            self.assertEqual(ours, theirs, name)


if __name__ == "__main__":
    unittest.main()
