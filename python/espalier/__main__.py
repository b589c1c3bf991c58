"""`python -m espalier ...`: the program `espalier ...`, as one of the processes that torchrun, mpirun or srun started.

It makes the process group once a job wants one, and enters the same C++ program as a library: same flags, same files.
"""

import ctypes
import os
import sys
from pathlib import Path

from espalier.launch import LaunchError, first_line, launch_in

LIBRARY = "libespalier_program.so"
JOIN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_double, ctypes.POINTER(ctypes.c_char), ctypes.c_int)


class CLaunch(ctypes.Structure):
    """EspalierLaunch of espalier/cli/library.cpp."""

    _fields_ = [("rank", ctypes.c_int), ("local_rank", ctypes.c_int), ("size", ctypes.c_int), ("agent_keeps_store", ctypes.c_int),
                ("store_address", ctypes.c_char_p), ("join", JOIN)]


def library_path():
    """ESPALIER_LIBRARY; beside the package; where `cmake --install` puts it; in the checkout's build."""
    if named := os.environ.get("ESPALIER_LIBRARY"):
        if not Path(named).is_file():
            raise LaunchError(f"ESPALIER_LIBRARY: there is no file '{named}'")
        return Path(named)
    package = Path(__file__).resolve().parent
    places = [package, package.parent.parent / "build" / "release"]
    if package.parent.parent.parent.name == "share":  # PREFIX/share/espalier/python/espalier
        prefix = package.parents[3]
        places += [prefix / "lib" / "espalier", *sorted(prefix.glob("lib*")), *sorted(prefix.glob("lib/*-linux-gnu"))]
    for place in places:
        if (place / LIBRARY).is_file():
            return place / LIBRARY
    raise LaunchError(f"{LIBRARY} is neither beside {package} nor in a build: build it (cmake --build --preset release --target "
                      "espalier_program), or name it with ESPALIER_LIBRARY")


def release(version):
    """ "2.11" of "2.11.0+cu130": what must be the same."""
    return version.split("+")[0].split(".")[:2]


def load_library():
    path = library_path()
    import torch  # first, so that the library finds this torch

    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LaunchError(f"{path}: cannot be loaded beside torch {torch.__version__}: {error}; build it with this Python's torch") from None
    library.espalier_torch_version.restype = ctypes.c_char_p
    built = library.espalier_torch_version().decode()
    if release(built) != release(torch.__version__):
        raise LaunchError(f"{path}: was built with torch {built}, and this Python has {torch.__version__}: install torch {'.'.join(release(built))}, or "
                          "build the library with this Python's torch")
    return library


def joined(launch, backend, limit_seconds):
    """The group's name and 0, or why there is none and 1."""
    try:
        from espalier import group

        return group.join(launch, backend, limit_seconds), 0
    except LaunchError as error:
        return str(error), 1
    except Exception as error:  # ctypes would swallow it
        return f"rank {launch.rank}: {type(error).__name__}: {first_line(error)}", 1


def enter(launch, arguments):
    library = load_library()

    def join(backend, limit_seconds, text, capacity):
        answer, code = joined(launch, backend.decode(), limit_seconds)
        data = answer.encode()[: capacity - 1] + b"\0"
        ctypes.memmove(text, data, len(data))
        return code

    words = [b"espalier", *(os.fsencode(word) for word in arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    told = CLaunch(launch.rank, launch.local_rank, launch.size, launch.agent_keeps_store, launch.store_address.encode(), JOIN(join))
    return library.espalier_main(len(words), argv, ctypes.byref(told))


def settle(environment):
    """Before torch is loaded. What the user set holds."""
    # Threads that wait spin for a moment alone, and what c10d logs is said in our own sentences.
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "10000")  # as espalier/core/machine/brief_waiting.h does
    environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # Who is lost is said by espalier's own heartbeats: NCCL's watchdog, and the monitor of that, would end a process before its sentence.
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    environment.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    # mpirun gives every rank a terminal, also where its own output is a file: a live view would be drawn into that.
    if "OMPI_COMM_WORLD_SIZE" in environment:
        environment["TERM"] = "dumb"


def main():
    settle(os.environ)
    try:
        code = enter(launch_in(), sys.argv[1:])
    except LaunchError as error:
        print(f"espalier: error: {error}", file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # The group's threads may wait for ranks that are gone: nothing is left to be done in order.
    os._exit(code)


if __name__ == "__main__":
    main()
