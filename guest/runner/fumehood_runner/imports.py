"""Small adjustments to libraries, made when the user's code imports them: importing any of them early would cost every start.

A finder at the front of sys.meta_path lets the ordinary machinery find the module and only adds a call after it has run.
"""

import sys
from importlib.machinery import PathFinder


class AfterImport:
    """A meta path finder that calls `hooks[name](module)` once that module has been executed."""

    def __init__(self, hooks):
        self._hooks = hooks

    def install(self):
        """Start; modules that are loaded already (in a preloaded interpreter) are adjusted now."""
        for name, hook in self._hooks.items():
            module = sys.modules.get(name)
            if module is not None:
                _call(hook, module)
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        """Part of the import protocol; None means "ask the next finder"."""
        hook = self._hooks.get(name)
        if hook is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader = getattr(spec, "loader", None)
        if loader is None:
            return spec
        run = loader.exec_module

        def exec_module(module):
            # Undone first: the loader must look untouched to whoever inspects it later.
            del loader.exec_module
            run(module)
            _call(hook, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader without instance attributes: the module stays as it is
        return spec


def _call(hook, module):
    try:
        hook(module)
    except Exception:
        pass  # an unknown version of the library: it works as it came


def prefer_fork(context):
    """multiprocessing.context: fork by default, as before Python 3.14.

    The other methods import the main module anew from a file, which submitted code is not. `set_start_method` still works.
    """
    if sys.version_info >= (3, 14):
        context._default_context._default_context = context._concrete_contexts["fork"]


def spawn_from(write_main):
    """multiprocessing.spawn: give children a file with the submitted code, since `__file__` names none that exists."""

    def hook(spawn):
        original = spawn.get_preparation_data

        def get_preparation_data(name):
            data = original(name)
            if "init_main_from_name" not in data:
                path = write_main()
                if path:
                    data["init_main_from_path"] = path
            return data

        spawn.get_preparation_data = get_preparation_data

    return hook


def getpass_from_stdin(module):
    """getpass: there is no terminal; read standard input, which ends instead of waiting for a person."""

    def getpass(prompt="Password: ", stream=None, **options):
        print(prompt, end="", file=stream or sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError("EOF when reading a line")
        return line.rstrip("\n")

    module.getpass = module.unix_getpass = getpass
