#!/usr/bin/env python3
"""Turns a folder of the library into one whose CUDA kernels a C++ compiler takes: translate.py FROM TO TWINS.

Copies every source of FROM (espalier/lanes) to TO, with launches, shared memory and what asks for a CUDA device put
into the words of tests/emulation/emulator.h and torch.h; *.cu become *.cu.cpp. Files of the folder TWINS (mma.cuh,
choose.cpp, cudnn_plan.cpp) stand in for those of the same name. Writes what has changed alone, and prints the files to compile.
"""
import pathlib
import re
import sys

TWINS = ("mma.cuh", "choose.cpp", "cudnn_plan.cpp")
CUDA_HEADERS = re.compile(r"#include <(cuda_runtime_api|cuda_bf16|cuda_fp16|cuda_pipeline)\.h>")
TORCH_HEADERS = re.compile(r"#include <c10/cuda/\w+\.h>")
DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];")
# A type, and names with their sizes behind it: the only forms there are.
STATIC = re.compile(r"__shared__ ((?:__align__\(\d+\) )?\w+(?:<\w+>)?) (\w[^;]*);")
NAME = re.compile(r"(\w+)(?:\[[^]]*\])*(?:, |$)")


def count_static(declaration):
    kind, names = declaration.groups()
    sizes = " + ".join(f"sizeof({name})" for name in NAME.findall(names))
    first = NAME.match(names).group(1)
    return f"static {kind} {names}; ::espalier::emulate::count_static_shared(&{first}, {sizes});"


def translate(text, is_kernel):
    text = CUDA_HEADERS.sub('#include "tests/emulation/emulator.h"', text)
    text = TORCH_HEADERS.sub('#include "tests/emulation/torch.h"', text)
    text = DYNAMIC.sub(r"\1* const \2 = static_cast<\1*>(::espalier::emulate::dynamic_shared());", text)
    text = STATIC.sub(count_static, text)
    if is_kernel:
        # nvcc includes its own headers by itself. Elsewhere three brackets close templates.
        text = '#include "tests/emulation/emulator.h"\n' + text
        text = text.replace("<<<", " / ::espalier::emulate::Launch(").replace(">>>", ")")
    text = text.replace("c10::cuda::", "espalier::emulate::").replace("is_cuda()", "is_cpu()")
    return re.sub(r"#pragma unroll( \d+)?", "", text)


def main():
    source, target, twins = (pathlib.Path(each) for each in sys.argv[1:])
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        to = target / path.relative_to(source)
        if path.suffix == ".cu":
            to = to.with_name(to.name + ".cpp")
        is_kernel = path.suffix in (".cu", ".cuh")
        text = (twins / path.name).read_text() if path.name in TWINS else translate(path.read_text(), is_kernel)
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_text() != text:
            to.write_text(text)
        if to.suffix == ".cpp":
            print(to)


main()
