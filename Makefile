# Everything a person types. `make run` and `make test` set up a bare machine by themselves.
.PHONY: help run learn learn-gpu bench soak drills test build program deps configure check gpu-test gpu-bundle hello format clean

BUILD := build/release
ENV := scripts/with-env
JOBS := $(shell nproc)
# torch's CMake warns about much that does not concern us: shown only where configuring fails.
QUIETLY = mkdir -p build && $(1) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }

help:
	@echo 'make run         install what is missing, build the program, and show what growing is worth, on the CPU'
	@echo 'make learn       train a policy on the CPU for a while, and compare it with its opponents on held-out episodes'
	@echo 'make learn-gpu   the same on a GPU and CIFAR-10, in pieces of 9 minutes: DATA=cifar10:FOLDER SEED=0; STABILITY=1: at five rates'
	@echo 'make bench       every workload beside its peers, into bench/results; DOCS=docs/benchmarks.md: and the table there'
	@echo 'make drills      faults, at length: kills, signals, full disks, damaged files'
	@echo 'make soak        hours of rounds: memory, descriptors and threads stay flat (SOAK_MINUTES=120)'
	@echo 'make test        the same set-up, then every test'
	@echo 'make program     the same set-up, then the program alone: $(BUILD)/espalier'
	@echo 'make build       the same, with tests, benchmarks and examples'
	@echo 'make check       formatting and include directions'
	@echo 'make asan tsan   the tests under a sanitizer'
	@echo 'make fuzz        fuzz every reader of outside bytes for ten minutes each; FUZZ_SECONDS=60: for one'
	@echo 'make hello       build one small program with the CUDA compiler from PyPI, as on a machine without a toolkit'
	@echo 'make gpu-test    every test and benchmark on a machine with a GPU; SANITIZE=1: the CUDA tests under compute-sanitizer too'
	@echo 'make gpu-bundle  the built programs in one folder, to run on another machine with the same torch'
	@echo 'make deb         a Debian package of the program for every GPU, in build/deb, tried in an empty folder (FRESH=1: in a new system);'
	@echo '                 GPU_ARCHITECTURES=9.0: for Hopper alone, which is quicker'
	@echo 'make container   an image of the same release, built and tried by podman, docker or buildah, whichever works (ENGINE=docker: that)'
	@echo 'make format      rewrite the sources in the house style'

deps:
	@scripts/install-deps

configure: deps
	@$(call QUIETLY,$(ENV) cmake --preset release -Wno-author)

build: configure
	@$(ENV) cmake --build --preset release -j $(JOBS)

# The program alone: what `make run` needs of a build.
program: configure
	@$(ENV) cmake --build --preset release -j $(JOBS) --target espalier

run: program
	@$(BUILD)/espalier demo

# What growing is worth: a policy learns, then it and its opponents play held-out episodes (scripts/learn-gpu --help). On the CPU in
# small; on a GPU one seed takes a few calls, each of which goes on: make learn-gpu DATA=cifar10:FOLDER SEED=0. STABILITY=1: whether
# growing leaves any network behind, at five rates.
LEARN := build/learn
learn: program
	@rm -rf $(LEARN)
	@$(ENV) scripts/learn-gpu $(LEARN) --form cpu

LEARN_GPU := build/learn-gpu
SEED := 0
STABILITY :=
learn-gpu: program
	@$(ENV) scripts/learn-gpu $(LEARN_GPU) --seed $(SEED) $(if $(DATA),--data $(DATA)) $(if $(STABILITY),--stability)

# Ours and the peers, as JSON in bench/results and as a table (bench/README.md). BENCH="--rows population --repeats 5": more flags.
BENCH :=
DOCS :=
bench: program
	@$(ENV) $(BUILD)/espalier bench all $(BENCH)
	@$(if $(DOCS),$(ENV) $(BUILD)/espalier bench table "$$(ls -t bench/results/*.json | head -n 1)" --docs $(DOCS))

# The long forms of what `make test` does briefly (docs/reliability.md).
drills: program
	@ESPALIER_DRILLS=large $(ENV) python3 tests/faults/drills_test.py $(BUILD)/espalier

SOAK_MINUTES := 120
soak: program
	@ESPALIER_SOAK_MINUTES=$(SOAK_MINUTES) $(ENV) python3 tests/faults/soak_test.py $(BUILD)/espalier

test: build
	@cd $(BUILD) && ../../scripts/with-env ctest --output-on-failure -j $(JOBS)

check: deps
	@scripts/check-format
	@$(ENV) scripts/check-includes

format: deps
	@scripts/check-format --fix

# The tests under a sanitizer: make asan (unit and integration tests), make tsan (unit tests); SUITES="core watch" for the unit tests of
# some folders. Left out: operators, peers and ranks, whose Python cannot load instrumented code, the
# soak, since a sanitizer keeps what was freed, and the example, which is not built.
SUITES :=
SANITIZED_asan := -L 'unit|integration' -E '^integration[.](operators|peers|ranks|soak|example_gather)$$'
SANITIZED_tsan := -L unit
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
asan tsan: deps
	@$(call QUIETLY,$(ENV) cmake --preset $@ -Wno-author)
	@$(ENV) cmake --build --preset $@ -j $(JOBS) --target $(if $(SUITES),$(SUITES:%=%_tests),unit_tests espalier)
	@cd build/$@ && ../../scripts/with-env ctest --output-on-failure -j $(JOBS) \
	  $(if $(SUITES),-R '^unit[.]($(subst $(SPACE),|,$(SUITES)))$$',$(SANITIZED_$@))
.PHONY: asan tsan

FUZZ_SECONDS ?= 600
fuzz: deps
	@scripts/fuzz $(FUZZ_SECONDS)
.PHONY: fuzz

hello:
	@ESPALIER_SYSTEM_CUDA=off scripts/install-deps
	@$(call QUIETLY,ESPALIER_SYSTEM_CUDA=off $(ENV) cmake -G Ninja -S . -B build/hello -DESPALIER_ONLY_HELLO=ON -Wno-author)
	@ESPALIER_SYSTEM_CUDA=off $(ENV) cmake --build build/hello --target hello
	@build/hello/examples/hello

gpu-test: build
	@$(ENV) scripts/gpu-test $(BUILD)

gpu-bundle: build
	@$(ENV) scripts/gpu-bundle $(BUILD) gpu-bundle

# The release: code for every architecture that users have, or for those that are named, without tests.
GPU_ARCHITECTURES :=
deb: deps
	@$(call QUIETLY,$(ENV) cmake --preset package $(if $(GPU_ARCHITECTURES),"-DTORCH_CUDA_ARCH_LIST=$(GPU_ARCHITECTURES)") -Wno-author)
	@$(ENV) cmake --build --preset package -j $(JOBS) --target espalier espalier_ops espalier_program
	@rm -rf build/deb && scripts/make-deb build/package build/deb
	@scripts/check-deb $(if $(FRESH),--fresh) build/deb/espalier_*.deb
.PHONY: deb

# The same in an image, which is built from the sources by the engine; nothing is wanted of this machine but that.
ENGINE :=
container:
	@GPU_ARCHITECTURES="$(GPU_ARCHITECTURES)" scripts/check-container $(ENGINE)
.PHONY: container

clean:
	rm -rf build gpu-bundle
