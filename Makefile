# Thin front door: the scripts bring what is missing, the CMake presets build. `make` alone lists the targets.
SHELL    := /bin/bash
PRESET   ?= dev
FUZZ_S   ?= 20
ONLY     ?=
PREFIX   ?= /usr/local
ARGS     ?=
in_env    = . scripts/env.sh &&
test_py   = . scripts/env.sh && "$$PL_TEST_ENV/bin/python" scripts/test.py

.DEFAULT_GOAL := help
.PHONY: help setup build run chat test test-quick test-full unit e2e asan tsan coverage fuzz chaos marks bench bench-llama screenshots lint format requirements docs doc-outputs install wheel deb clean

help:        ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:       ## fetch and make what running and testing need; quick when nothing is missing
	@scripts/setup.sh run && scripts/setup.sh test
build:       ## build/$(PRESET): dev, or PRESET=release|asan|tsan|coverage
	@PLIMSOLL_NO_TORCH=1 PLIMSOLL_NO_LLAMA=1 scripts/setup.sh test && scripts/build.sh $(PRESET)
run:         ## serve examples/digits on port 3000 (ARGS="--port 8000" for another)
	@exec scripts/run.sh $(ARGS)

chat:        ## serve a small language model (SmolLM2, 98 MB) on port 3000, OpenAI's API
	@exec scripts/chat.sh $(ARGS)

test:        ## what CI runs: C tests under ASan + UBSan, Python and end-to-end tests (PLIMSOLL_NO_TORCH=1: without PyTorch)
	@scripts/setup.sh test && $(test_py) default $(ARGS)
test-quick:  ## C and Python tests alone, no server is started, no PyTorch is fetched
	@PLIMSOLL_NO_TORCH=1 PLIMSOLL_NO_LLAMA=1 scripts/setup.sh test && export PLIMSOLL_NO_LLAMA=1 && $(test_py) quick $(ARGS)
test-full:   ## also the long end-to-end tests, and all of them once more under ASan
	@scripts/setup.sh full && $(test_py) full $(ARGS)
unit:        ## C tests alone, build/$(PRESET)
	@PLIMSOLL_NO_TORCH=1 scripts/setup.sh test && $(test_py) unit --preset $(PRESET) $(ARGS)
e2e:         ## end-to-end tests alone, build/$(PRESET) (ARGS="-k restart")
	@scripts/setup.sh test && $(test_py) e2e --preset $(PRESET) $(ARGS)
asan:        ## C and end-to-end tests under ASan + UBSan
	@scripts/setup.sh test && $(test_py) sanitized --preset asan $(ARGS)
tsan:        ## C tests and some end-to-end tests under TSan
	@scripts/setup.sh test && $(test_py) sanitized --preset tsan $(ARGS)
coverage:    ## lines of src/ that the tests reach
	@scripts/setup.sh coverage && $(test_py) sanitized --preset coverage $(ARGS); \
	 gcovr --root . --filter src/ --exclude-unreachable-branches build/coverage
fuzz:        ## FUZZ_S CPU seconds (20) for every parser of foreign bytes, or for those in ONLY (clang, libFuzzer)
	@scripts/setup.sh fuzz && scripts/build.sh fuzz && scripts/fuzz.sh $(FUZZ_S) $(ONLY)
chaos:       ## kills, stops, full disks, lies and 10,000 connections by a seed, under clients that check every byte (ARGS="--seconds 1800 --seed N --bento")
	@scripts/setup.sh test && scripts/build.sh $(PRESET) && $(in_env) export PLIMSOLL_BUILD="$$PWD/build/$(PRESET)" && "$$PL_TEST_ENV/bin/python" tests/chaos/chaos.py $(ARGS)
marks:       ## how well leaks are told from caches: 200 random series a kind of 12,000 requests (ARGS="RUNS REQUESTS SEED")
	@PLIMSOLL_NO_TORCH=1 scripts/setup.sh test && scripts/build.sh dev && build/dev/test_ledger_marks $(or $(ARGS),200)
bench:       ## CPU, memory and start beside nginx, HAProxy and bentoml serve, and how cost grows, into docs (15 minutes; ARGS=--short, ARGS="--peers envoy")
	@scripts/setup.sh $(if $(findstring --peers,$(ARGS)),bench-peers,bench) && scripts/build.sh release -DBUILD_TESTING=OFF && \
	 $(in_env) "$$PL_TEST_ENV/bin/python" bench/run.py --out docs/bench.md $(ARGS)

bench-llama: ## plimsoll-llama beside llama-server of the same source, into docs/bench-llama.md (10 minutes; llama-server is built once)
	@scripts/setup.sh bench-llama && scripts/build.sh release -DBUILD_TESTING=OFF && \
	 $(in_env) "$$PL_TEST_ENV/bin/python" bench/llama/compare.py --out docs/bench-llama.md $(ARGS)

screenshots: ## pictures of the dashboard into docs/img, from a real Chromium
	@scripts/setup.sh test && mkdir -p docs/img && export PL_SCREENSHOTS=$$PWD/docs/img && $(test_py) e2e -k "test_pictures" $(ARGS)

lint:        ## clang-format, ruff, then clang-tidy as advice
	@scripts/setup.sh lint && scripts/lint.sh
format:      ## clang-format and ruff, in place; .def tables are left alone
	@scripts/setup.sh lint && scripts/lint.sh --fix
requirements: ## which test shows each demand of docs/requirements.md, and what runs it
	@python3 scripts/requirements.py
docs:        ## docs/reference and the JSON Schema anew from the tables; a test compares
	@scripts/setup.sh build && scripts/build.sh release -DBUILD_TESTING=OFF && \
	 python3 scripts/docs.py build/release
doc-outputs: ## run the commands that README, docs/ and examples/ show, and write what they say into the pages (ARGS="docs/plan.md")
	@scripts/setup.sh test && scripts/build.sh $(PRESET) && \
	 $(in_env) PLIMSOLL_BUILD=build/$(PRESET) "$$PL_TEST_ENV/bin/python" scripts/doc_outputs.py --write $(ARGS)
install:     ## release build into $(PREFIX), below DESTDIR
	@scripts/setup.sh build && scripts/build.sh release -DBUILD_TESTING=OFF && \
	 cmake --install build/release --prefix $(PREFIX)
wheel:       ## dist/plimsoll-*.whl, and plimsoll_llama-*.whl for GGUF files (PLIMSOLL_NO_LLAMA=1: without)
	@scripts/setup.sh wheel && scripts/make-wheel.sh
deb:         ## dist/plimsoll_*.deb for this Debian, checked by lintian
	@scripts/setup.sh deb && scripts/make-deb.sh
clean:       ## drop every build folder (the cache outside the clone stays)
	rm -rf build
