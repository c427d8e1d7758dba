# Entry points for users and CI; meson and ninja do the work. `make help` lists the targets.
# Variables: BUILD (build folder), PORT, DB, FIXTURES, GOLDEN and GOLDEN_GGUF (conformance), PREFIX and DESTDIR.
BUILD    ?= build
PREFIX   ?= /usr/local
PORT     ?= 8000
JOBS     ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
FIXTURES ?=
GOLDEN   ?=
MESON    ?= meson
# where tools/install-deps.sh installs node if the system's is too old to build the dashboard
PERJOULE_NODE ?= $(HOME)/.cache/perjoule/node
export PERJOULE_NODE
export PATH := $(PERJOULE_NODE)/bin:$(PATH)
# Homebrew's libpq, whose header the build needs, is keg-only: pkg-config does not
# find it by default
ifeq ($(shell uname -s),Darwin)
export PKG_CONFIG_PATH := $(shell brew --prefix 2>/dev/null)/opt/libpq/lib/pkgconfig:$(PKG_CONFIG_PATH)
endif
TEST_ARGS = --print-errorlogs --no-rebuild --num-processes $(JOBS)

.PHONY: all program deps run test check bench lint fuzz conformance cross sanitize install uninstall dist dist-bin deb \
    bare-root wheel python-test clean help

all: deps $(BUILD)/build.ninja
	@ninja -C $(BUILD)

program: deps $(BUILD)/build.ninja
	@ninja -C $(BUILD) program

deps:
	@tools/install-deps.sh

$(BUILD)/build.ninja: | deps
	@$(MESON) setup $(BUILD) --prefix "$(PREFIX)" $$(tools/libdir.sh)

run: program ## install what is missing, build, profile the demo model, serve the dashboard on PORT (8000)
	@tools/run-demo.sh $(BUILD)/perjoule $(PORT)

test: ## everything: unit, command line, server, browser, corpus, layers, sanitizers
	@tools/install-deps.sh --test
	@tools/test.sh $(BUILD)

check: all ## the fast part of the tests: unit, command line, checks of the sources
	@tools/install-deps.sh --test
	@tools/test.sh $(BUILD) check

bench: all ## ratios and figures; never passes or fails on time
	@for b in memory kernels engine sampler overhead attribution store server; do \
	    echo "== $$b"; $(BUILD)/perjoule bench $$b || exit 1; done

lint: ## formats, static checks, types
	@tools/install-deps.sh --lint
	@tools/lint.sh

fuzz: ## every fuzz target for FUZZ_SECONDS (60) with the address and undefined sanitizers
	@tools/install-deps.sh --lint
	@tools/fuzz.sh

conformance: all ## the large sets: make conformance FIXTURES=dir GOLDEN=dir
	@PJ_FIXTURES="$(if $(FIXTURES),$(abspath $(FIXTURES)))" PJ_GOLDEN="$(if $(GOLDEN),$(abspath $(GOLDEN)))" \
	PJ_GOLDEN_GGUF="$(if $(GOLDEN_GGUF),$(abspath $(GOLDEN_GGUF)),$(abspath $(wildcard $(GOLDEN)-gguf)))" \
	    $(MESON) test -C $(BUILD) $(TEST_ARGS) --verbose --suite conformance

cross: ## compile everything for macOS, run the NEON kernels under an emulator
	@tools/install-deps.sh --cross
	@tools/cross.sh

sanitize: deps ## the tests under the address, undefined and thread sanitizers
	@tools/sanitize.sh

install: ## into PREFIX (/usr/local), below DESTDIR
	@[ -x $(BUILD)/perjoule ] || $(MAKE) --no-print-directory program
	@tools/install.sh $(BUILD) "$(PREFIX)" "$(DESTDIR)"

uninstall: ## remove what `make install` put there
	@tools/install.sh --remove $(BUILD) "$(PREFIX)" "$(DESTDIR)"

dist: all ## a source archive with the dashboard already built
	@tools/install-deps.sh --dist
	@tools/dist.sh $(BUILD)

dist-bin: ## programs for Linux on x86_64 and aarch64 that need nothing but glibc 2.28
	@tools/install-deps.sh --dist-bin
	@tools/dist-bin.sh

wheel: all ## the Python package: source archive and wheels for Linux (x86_64, aarch64) and macOS (arm64), in dist/
	@tools/install-deps.sh --dist-bin
	@tools/wheel.sh $(BUILD)

python-test: all ## the Python package installed into a fresh environment, and its tests with real models
	@tools/install-deps.sh --python
	@tools/python-test.sh $(BUILD)

deb: ## a Debian package in dist/
	@tools/install-deps.sh --deb
	@tools/deb.sh

bare-root: ## every command of the README on a fresh minimal Debian (as root)
	@tools/bare-root.sh

clean:
	@rm -rf $(BUILD) build-*

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14
