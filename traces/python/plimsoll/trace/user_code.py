"""A user's own file, loaded as Python loads a script: what lies beside it can be imported."""

import importlib.util
import os
import sys


def load_file(path, name="plimsoll_user_model"):
    """The module that the file at `path` is; raises whatever its code raises.

    Its folder is the first where imports are looked for, then and later (a model may import when it is called). The module is
    in sys.modules as `name`: torch.compile looks there for what functions name.
    """
    look_first_in(os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def look_first_in(folder):
    """Nothing else changes where Python looks for what is imported (tests/structure/python_test.cpp)."""
    sys.path.insert(0, folder)
