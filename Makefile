# Thin: CMake knows how to build, ctest how to test, scripts/ the rest.
PRESET ?= release
BUILD  := build/$(PRESET)
JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local
EVENTS ?=
CONFIG ?=
ONCE   ?=

.PHONY: all build setup run test test-full bench install clean format check-format tidy

all: build

setup:
	@scripts/setup

build: setup
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

run: build
	@BUILD=$(BUILD) EVENTS="$(EVENTS)" CONFIG="$(CONFIG)" ONCE="$(ONCE)" scripts/run

test: build
	@ctest --test-dir $(BUILD) --output-on-failure -LE 'full|bench' -j $(JOBS)

test-full: build
	@ctest --test-dir $(BUILD) --output-on-failure -LE bench -j $(JOBS)

bench: build
	@BUILD=$(BUILD) scripts/bench

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

format:
	@scripts/format

check-format:
	@scripts/format --check

tidy: build
	@scripts/tidy $(BUILD)

clean:
	@rm -rf build
