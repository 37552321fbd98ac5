# Thin: CMake knows how to build, ctest how to test, scripts/ the rest.
PRESET ?= release
BUILD  := build/$(PRESET)
JOBS   ?= $(shell nproc)
# Tests wait more than they compute.
TESTS  ?= $(shell expr 6 \* $(JOBS))
PREFIX ?= /usr/local
EVENTS ?=
CONFIG ?=
ONCE   ?=

.PHONY: all package build page setup run test test-full bench install clean format check-format tidy

all: build

setup:
	@scripts/setup

build: setup
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@scripts/page --if-any $(BUILD)

page:
	@scripts/page $(BUILD)

run: build
	@BUILD=$(BUILD) EVENTS="$(EVENTS)" CONFIG="$(CONFIG)" ONCE="$(ONCE)" scripts/run

test: build
	@scripts/setup --test
	@ctest --test-dir $(BUILD) --output-on-failure -LE full -j $(TESTS)

test-full: build
	@scripts/setup --test
	@MILLRACE_TEST_DIR=$${TMPDIR:-/tmp} ctest --test-dir $(BUILD) --output-on-failure -j $(TESTS)
	@BUILD=$(BUILD) TESTS=$(TESTS) scripts/test-clocks || test $$? -eq 77

bench: build
	@BUILD=$(BUILD) scripts/bench

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

package: build
	@scripts/setup --package
	@cd $(BUILD) && cpack --config CPackConfig.cmake >/dev/null && ls package/*.deb

format:
	@scripts/format

check-format:
	@scripts/format --check

tidy: build
	@scripts/tidy $(BUILD)

clean:
	@rm -rf build
