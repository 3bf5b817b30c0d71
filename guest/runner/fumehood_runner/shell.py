"""IPython's InteractiveShell without a person in front of it: no history, colours, profile, completer or prompts."""

import os
import shutil
import sys
import types
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.profiledir import ProfileDir
from traitlets.config import Config

from .display import Formatter, ShellDisplayHook, ShellPublisher


class _NoProfile(ProfileDir):
    def _location_changed(self, change):
        """Replaces the observer that creates the profile's directories."""


class Shell(InteractiveShell):
    """Provides magics, display formatting and the user's namespace. Code itself is run by `execute`, not by run_cell."""

    display_pub_class = ShellPublisher
    displayhook_class = ShellDisplayHook

    on_error = None
    """Called with an exception that IPython reports itself, inside a magic."""

    @classmethod
    def create(cls, module):
        """The singleton, running in `module`, which becomes `__main__`."""
        config = Config()
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"
        config.InteractiveShell.colors = "nocolor"
        config.InteractiveShell.cache_size = 0
        config.InteractiveShell.autoindent = False
        config.InteractiveShell.automagic = False
        shell = cls.instance(config=config, user_module=module)
        shell.db = {}  # what magics remember between sessions; there is no profile to keep it in
        for name in ("_", "__", "___", "__builtin__"):
            # Left by the display hook, whose cache is off, and by IPython's past; a script's namespace has none of them.
            module.__dict__.pop(name, None)
        return shell

    def init_ipython_dir(self, ipython_dir):
        """Names a directory, creates none: the home directory may be read-only."""
        self.ipython_dir = os.path.join(os.environ.get("TMPDIR") or "/tmp", "ipython")

    def _ipython_dir_changed(self, change):
        """Replaces the observer that creates it."""

    def init_profile_dir(self, profile_dir):
        """A profile that has a place, for code that asks, and no files."""
        self.profile_dir = _NoProfile(location=self.ipython_dir)

    def in_directory(self, path):
        """Remember the directory of the start, which was another one where this shell was made before a fork."""
        if path != self.starting_dir:
            self.starting_dir = path
            self.history_manager.dir_hist[:] = [Path(path)]

    def init_completer(self):
        """Nobody types here."""
        self.Completer = None

    def init_prompts(self):
        """No sys.ps1: libraries take it for an interactive session."""

    def init_virtualenv(self):
        """The interpreter is the right one already."""

    def init_display_formatter(self):
        """See `display.Formatter`."""
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def init_user_ns(self):
        """Only what magics look up. No In, Out, exit or open: the namespace should look like a script's."""
        history = self.history_manager
        hidden = {"_ih": history.input_hist_parsed, "_oh": history.output_hist, "_dh": history.dir_hist}
        self.user_ns_hidden.update(hidden)
        self.user_ns.update(hidden)

    def init_builtins(self):
        """Keep Python's exit and quit; IPython hides them because it puts its own into the namespace."""
        super().init_builtins()
        self.builtin_trap.auto_builtins = {"get_ipython": self.get_ipython}

    def atexit_operations(self):
        """Temporary files only: the user's exit functions still need the namespace."""
        for path in self.tempfiles:
            try:
                os.unlink(path)
            except OSError:
                pass
        for path in self.tempdirs:
            shutil.rmtree(path, ignore_errors=True)

    # Straight to descriptors 1 and 2, like any child: pexpect would merge both streams in a pseudo-terminal.
    system = InteractiveShell.system_raw

    def enable_gui(self, gui=None):
        """There is no event loop of a toolkit."""

    def enable_matplotlib(self, gui=None):
        """`%matplotlib ...`: figures are delivered in any case."""
        return gui or "inline", "agg"

    def showtraceback(self, exc_tuple=None, filename=None, tb_offset=None, exception_only=False, running_compiled_code=False):
        """Called by magics that run code and report its errors themselves."""
        self._report(exc_tuple[1] if exc_tuple else sys.exc_info()[1])

    def showsyntaxerror(self, filename=None, running_compiled_code=False):
        """See showtraceback."""
        self._report(sys.exc_info()[1])

    def _report(self, exception):
        if exception is not None and self.on_error is not None:
            self.on_error(exception)


def new_main_module():
    """An empty `__main__`. What runs now as `__main__` (start.py) must not be visible to the user."""
    return types.ModuleType("__main__")
