# Everything a person types. `make run` and `make test` set up a bare machine by themselves.
.PHONY: help run learn soak drills test build deps configure check gpu-test gpu-bundle hello format clean

BUILD := build/release
ENV := scripts/with-env
JOBS := $(shell nproc)
# A deliberately weak host on small images: a step of all networks takes a fraction of a second on the CPU.
SMALL_ENVS := --data synthetic:shapes10 --devices cpu --synthetic-train 1200 --synthetic-test 600 --synthetic-size 16x16 \
  --validation 200 --envs 4 --batch-per-env 25 --episode-length 16 --learning-rate 0.1
SMALL_POLICY := --encoder-size 64 --hidden-size 64 --policy-rate 1e-3
# torch's CMake warns about much that does not concern us: shown only where configuring fails.
QUIETLY = mkdir -p build && $(1) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }

help:
	@echo 'make run         install what is missing, build, and train a small policy on the embedded dataset on the CPU'
	@echo 'make learn       train a policy on the CPU for a while, and compare it with random decisions'
	@echo 'make drills      faults, at length: kills, signals, full disks, damaged files'
	@echo 'make soak        hours of rounds: memory, descriptors and threads stay flat (SOAK_MINUTES=120)'
	@echo 'make test        the same set-up, then every test'
	@echo 'make build       the same set-up, then stop: the program is $(BUILD)/espalier'
	@echo 'make check       formatting and include directions'
	@echo 'make asan tsan   the tests under a sanitizer'
	@echo 'make fuzz        fuzz every reader of outside bytes for ten minutes each; FUZZ_SECONDS=60: for one'
	@echo 'make hello       build one small program with the CUDA compiler from PyPI, as on a machine without a toolkit'
	@echo 'make gpu-test    every test and benchmark on a machine with a GPU; SANITIZE=1: the CUDA tests under compute-sanitizer too'
	@echo 'make gpu-bundle  the built programs in one folder, to run on another machine with the same torch'
	@echo 'make format      rewrite the sources in the house style'

deps:
	@scripts/install-deps

configure: deps
	@$(call QUIETLY,$(ENV) cmake --preset release -Wno-author)

build: configure
	@$(ENV) cmake --build --preset release -j $(JOBS)

run: build
	@$(BUILD)/espalier train ppo $(SMALL_ENVS) $(SMALL_POLICY) --rounds 16

# Whether a policy that learned for a while beats one that draws, on networks that are too small for their task.
LEARN := build/learn
learn: build
	@rm -rf $(LEARN) && mkdir -p $(LEARN)
	@$(BUILD)/espalier train ppo $(SMALL_ENVS) $(SMALL_POLICY) --rounds 40 --run-dir $(LEARN)/train
	@$(BUILD)/espalier evaluate $(SMALL_ENVS) --episodes 8 \
	  --controllers random,none,heuristic,ppo:$(LEARN)/train/policy.safetensors --run-dir $(LEARN)/evaluate

# The long forms of what `make test` does briefly (docs/reliability.md).
drills: build
	@ESPALIER_DRILLS=large $(ENV) python3 tests/faults/drills_test.py $(BUILD)/espalier

SOAK_MINUTES := 120
soak: build
	@ESPALIER_SOAK_MINUTES=$(SOAK_MINUTES) $(ENV) python3 tests/faults/soak_test.py $(BUILD)/espalier

test: build
	@cd $(BUILD) && ../../scripts/with-env ctest --output-on-failure -j $(JOBS)

check: deps
	@scripts/check-format
	@$(ENV) scripts/check-includes

format: deps
	@scripts/check-format --fix

# The tests under a sanitizer: make asan (unit and integration tests), make tsan (unit tests); SUITES="core watch" for the unit tests of
# some folders. Left out: operators and peers, whose Python cannot load instrumented code, the
# soak, since a sanitizer keeps what was freed, and the example, which is not built.
SUITES :=
SANITIZED_asan := -L 'unit|integration' -E '^integration[.](operators|peers|soak|example_gather)$$'
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

clean:
	rm -rf build gpu-bundle
