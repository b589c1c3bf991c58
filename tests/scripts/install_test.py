"""The installed package serves a project outside this tree: configured with find_package(espalier), built, run."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

if os.environ.get("ESPALIER_SANITIZE"):
    print("skipped: a package of instrumented libraries is nobody's")
    sys.exit(0)

program = pathlib.Path(sys.argv[1]).resolve()
build, source = program.parent, pathlib.Path(__file__).resolve().parents[2]
CMAKE = """cmake_minimum_required(VERSION 3.28)
project(outside LANGUAGES CXX)
find_package(espalier REQUIRED)
add_executable(outside outside.cpp)
target_link_libraries(outside PRIVATE espalier::espalier)
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n")
        sys.exit(f"failed: {' '.join(str(part) for part in command)}")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    prefix, outside = pathlib.Path(folder) / "prefix", pathlib.Path(folder) / "outside"
    run("cmake", "--install", build, "--prefix", prefix)
    outside.mkdir()
    (outside / "CMakeLists.txt").write_text(CMAKE)
    example = (source / "examples" / "own_controller.cpp").read_text()
    (outside / "outside.cpp").write_text(example.replace('"examples/small_job.h"', '"small_job.h"'))
    shutil.copy(source / "examples" / "small_job.h", outside)
    environment = dict(os.environ, CMAKE_PREFIX_PATH=f"{prefix}:{os.environ.get('CMAKE_PREFIX_PATH', '')}".rstrip(":"))
    run("cmake", "-G", "Ninja", "-S", outside, "-B", outside / "build", "-DCMAKE_BUILD_TYPE=Release", env=environment)
    run("cmake", "--build", outside / "build", env=environment)
    said = run(outside / "build" / "outside")
    assert "test accuracy" in said, said
    for name in ("man/man1/espalier.1", "man/man1/espalier-train-ppo.1", "bash-completion/completions/espalier",
                 "zsh/vendor-completions/_espalier", "fish/vendor_completions.d/espalier.fish", "espalier/python/espalier_linet.py"):
        assert (prefix / "share" / name).stat().st_size > 1000, name
    shown = run(prefix / "bin" / "espalier", "--version")
    assert "espalier" in shown, shown
    if importlib.util.find_spec("torch"):
        own = {name: value for name, value in os.environ.items() if name != "ESPALIER_LIBRARY"}
        again = run(sys.executable, "-m", "espalier", "--version", cwd=folder, env=dict(own, PYTHONPATH=str(prefix / "share" / "espalier" / "python")))
        assert again == shown, again
print("the installed package builds and runs a program outside the tree")
