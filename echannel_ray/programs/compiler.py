"""One thread per process compiles programs, while they run in another form.

Beside LLVM itself, which does not hold the interpreter's lock, that is the import of llvmlite and some Python.
Meanwhile the lock changes hands every 0.2 ms instead of every 5: so a producer that publishes at full speed hardly
notices.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from echannel_ray.programs.native import NativeCode, compile_program
from echannel_ray.programs.program import Program
from echannel_ray.schemas.schema import Layout

_SWITCH_INTERVAL_SECONDS: Final = 0.0002
_MAX_WAIT_AT_EXIT_SECONDS: Final = 5.0
_log: Final = logging.getLogger(__name__)


class CompileRequest:
    """What one engine asks for. `code` is there when `is_done` is set; it stays None where there is no native form."""

    def __init__(self, program: Program, layout: Layout, output: Layout | None, template: bytes) -> None:
        self.program, self.layout, self.output, self.template = program, layout, output, template
        self.code: NativeCode | None = None
        self.is_done = threading.Event()


def request(program: Program, layout: Layout, output: Layout | None, template: bytes) -> CompileRequest:
    """Have a program compiled in the background, unless nobody holds the request any more when its turn comes."""
    asked = CompileRequest(program, layout, output, template)
    _compiler().jobs.put(weakref.ref(asked))
    return asked


class _Compiler:
    """The thread; equal programs for equal layouts share their code as long as anybody uses it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.jobs: queue.SimpleQueue[Callable[[], CompileRequest | None]] = queue.SimpleQueue()
        self._serving = threading.Lock()
        self._codes: weakref.WeakValueDictionary[tuple[Any, ...], NativeCode] = weakref.WeakValueDictionary()
        threading.Thread(target=self._run, name="ecode-compiler", daemon=True).start()
        atexit.register(self.wait)

    def _run(self) -> None:
        while True:
            take = self.jobs.get()
            with self._serving:
                try:
                    self._serve(take())
                except Exception:
                    _log.exception("the memory of a program that is not used any more could not be freed")
            del take  # or what it holds would live until the next one comes

    def wait(self) -> None:
        """Let what is being compiled come to its end, and begin nothing more: LLVM goes with the process."""
        if self.process == os.getpid():
            self._serving.acquire(timeout=_MAX_WAIT_AT_EXIT_SECONDS)

    def _serve(self, job: CompileRequest | None) -> None:
        if job is None:
            return
        try:
            with quick_switches():
                job.code = self._code(job)
        except ImportError:
            _log.debug("no llvmlite: E-code stays interpreted; the extra `native` installs it")
        except Exception:
            _log.warning("a program could not be compiled, and stays interpreted", exc_info=True)
        finally:
            job.is_done.set()

    def _code(self, job: CompileRequest) -> NativeCode:
        # By what is written, not by equality: 0.0 and -0.0 are equal, and are not the same.
        key = (repr(job.program), job.layout, job.output, job.template)
        code = self._codes.get(key)
        if code is None:
            # LLVM does one thing at a time: who drops the last engine must not wait for what is being compiled.
            code = compile_program(job.program, job.layout, job.output, job.template, self.jobs.put)
            self._codes[key] = code
        return code


@contextmanager
def quick_switches() -> Iterator[None]:
    """Python that runs meanwhile, in this thread or others, lets go of the interpreter's lock sooner."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _SWITCH_INTERVAL_SECONDS))
    try:
        yield
    finally:
        if sys.getswitchinterval() <= _SWITCH_INTERVAL_SECONDS * 1.01:  # else somebody else has set it meanwhile
            sys.setswitchinterval(usual)


_lock: Final = threading.Lock()
_current: list[_Compiler] = []


def _compiler() -> _Compiler:
    """The compiler of this process: a fork has no threads, and makes its own."""
    with _lock:
        if not _current or _current[0].process != os.getpid():
            _current[:] = [_Compiler()]
        return _current[0]
