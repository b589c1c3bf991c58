# Sourced by the other scripts: where torch, CMake, Ninja and the CUDA compiler are on this machine.
#
# Sets ESPALIER_VENV (our virtual environment, there or not), ESPALIER_PYTHON (a Python with torch >= 2.11, or
# empty), ESPALIER_TORCH_PROBLEM (why an existing torch cannot serve), and puts our tools first in PATH.
# Torch is taken from CMAKE_PREFIX_PATH, else from python3, else from our environment.
#   ESPALIER_VENV=DIR         another place for the environment
#   ESPALIER_TORCH=venv       pass over python3's torch
#   ESPALIER_SYSTEM_CUDA=off  pass over the system's CUDA compiler
#   ESPALIER_TESTS=off        leave out what only the tests want

espalier_torch_wanted=2.11

espalier_cache_home() {
  case "${XDG_CACHE_HOME:-}" in
    /*) printf '%s' "$XDG_CACHE_HOME" ;;  # a relative value is to be ignored, says the XDG specification
    *) printf '%s' "$HOME/.cache" ;;
  esac
}
ESPALIER_VENV="${ESPALIER_VENV:-$(espalier_cache_home)/espalier/venv}"
export ESPALIER_VENV

# version_at_least HAVE WANT
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

torch_version_of() { "$1" -c 'from importlib.metadata import version; print(version("torch").split("+")[0])' 2>/dev/null || true; }

espalier_prefix_has_torch() {
  local dir dirs place
  IFS=':;' read -r -a dirs <<< "${CMAKE_PREFIX_PATH:-}"
  for dir in "${dirs[@]}"; do
    for place in "$dir" "$dir/Torch" "$dir/share/cmake/Torch"; do
      [ -f "$place/TorchConfig.cmake" ] && return 0
    done
  done
  return 1
}

ESPALIER_PYTHON=""
ESPALIER_TORCH_PROBLEM=""
espalier_find_torch() {
  local version
  if [ "${ESPALIER_TORCH:-}" != venv ] && command -v python3 >/dev/null 2>&1; then
    version="$(torch_version_of python3)"
    if [ -n "$version" ]; then
      if version_at_least "$version" "$espalier_torch_wanted"; then
        ESPALIER_PYTHON="$(command -v python3)"
        return
      fi
      ESPALIER_TORCH_PROBLEM="python3 has torch $version; $espalier_torch_wanted or newer is wanted: upgrade it, or set ESPALIER_TORCH=venv to have one installed in $ESPALIER_VENV"
      return
    fi
  fi
  if [ -x "$ESPALIER_VENV/bin/python" ]; then
    version="$(torch_version_of "$ESPALIER_VENV/bin/python")"
    if [ -n "$version" ] && version_at_least "$version" "$espalier_torch_wanted"; then
      ESPALIER_PYTHON="$ESPALIER_VENV/bin/python"
    fi
  fi
}
espalier_find_torch
if [ -z "$ESPALIER_PYTHON" ] && espalier_prefix_has_torch && [ -x "$ESPALIER_VENV/bin/python" ]; then
  ESPALIER_PYTHON="$ESPALIER_VENV/bin/python"  # for the scripts of the tests; the library comes from the prefix
fi
export ESPALIER_PYTHON

# The CUDA that torch was built with ("13.0"), or nothing for a torch without CUDA.
espalier_torch_cuda() {
  [ -n "$ESPALIER_PYTHON" ] && "$ESPALIER_PYTHON" -c 'import torch; print(torch.version.cuda or "")' 2>/dev/null || true
}

nvcc_release() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p'; }

# Where PyPI's CUDA compiler lies in our environment.
espalier_pypi_cuda() {
  local nvcc
  for nvcc in "$ESPALIER_VENV"/lib/python3*/site-packages/nvidia/cu*/bin/nvcc; do
    [ -x "$nvcc" ] && dirname "$(dirname "$nvcc")" && return
  done
  return 0
}

# Prints the folder of a CUDA toolkit whose major version is torch's, or nothing.
espalier_find_cuda() {
  local want="$1" nvcc
  if [ "${ESPALIER_SYSTEM_CUDA:-on}" != off ]; then
    for nvcc in "${CUDACXX:-}" "$(command -v nvcc 2>/dev/null)" /usr/local/cuda/bin/nvcc; do
      [ -x "$nvcc" ] || continue
      [ "$(nvcc_release "$nvcc" | cut -d. -f1)" = "${want%%.*}" ] || continue
      dirname "$(dirname "$(readlink -f "$nvcc")")"
      return
    done
  fi
  espalier_pypi_cuda
}

if [ -d "$ESPALIER_VENV/bin" ]; then
  PATH="$ESPALIER_VENV/bin:$PATH"
  export PATH
fi
