# Thin: CMake knows how to build, ctest how to test, scripts/ the rest.
PRESET ?= release
BUILD  := build/$(PRESET)
JOBS   ?= $(shell nproc)
TESTS  ?=
PREFIX ?= /usr/local
EVENTS ?=
CONFIG ?=
ONCE   ?=

.PHONY: all package build page setup run run-cluster test test-full bench install clean format check-format tidy

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

run-cluster: build
	@scripts/setup --cluster
	@BUILD=$(BUILD) ONCE="$(ONCE)" scripts/run-cluster

test: build
	@scripts/setup --test
	@BUILD=$(BUILD) TESTS=$(TESTS) scripts/test

test-full: build
	@scripts/setup --test
	@BUILD=$(BUILD) TESTS=$(TESTS) scripts/test --full

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
