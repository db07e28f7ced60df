# Two commands matter: `make demo` shows what polar does, `make test` proves it.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
export CGO_ENABLED := 0

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  := $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
TOOL    := go tool -modfile=tools/go.mod
FUZZTIME ?= 30s
FUZZDIRS ?= $(shell grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | sed 's|^\./||')

.PHONY: help build demo test check fuzz bench clean needs-go modules

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

needs-go:
	@command -v go >/dev/null || { echo "polar: Go is missing; install Go 1.26 or newer (https://go.dev/dl) and put it on your PATH" >&2; exit 1; }
	@v=$$(go env GOVERSION | sed 's/^go//'); case $$(printf '1.26\n%s\n' "$$v" | sort -V | head -n 1) in 1.26) ;; *) \
		echo "polar: Go 1.26 or newer is needed, this is $$v" >&2; exit 1;; esac

# A cold module cache can be refused by the proxy for asking too fast; a second try goes through.
modules: needs-go
	@for try in 1 2 3; do go mod download && exit 0; echo "polar: module download failed, trying again" >&2; sleep $$((try * 5)); done; \
		echo "polar: the Go modules could not be downloaded; check the network or GOPROXY" >&2; exit 1

build: modules ## build bin/polar, one static binary
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/polar ./cmd/polar

demo: build ## six tasks, four samples each, from nothing to printed traces
	@bin/polar demo

test: modules ## all tests with the race detector, the official clients, and the decoders under fuzzing
	@command -v gcc >/dev/null || { echo "polar: the race detector needs a C compiler; install gcc" >&2; exit 1; }
	@CGO_ENABLED=1 go vet ./...
	@CGO_ENABLED=1 go test -race -timeout 30m ./...
	@cd clients && for try in 1 2 3; do go mod download && exit 0; sleep $$((try * 5)); done; exit 1
	@cd clients && go vet ./... && go test -count=1 -timeout 15m ./...
	@$(MAKE) --no-print-directory fuzz FUZZTIME=10s FUZZDIRS="sse $$(echo protocol/*)"

check: test ## what a change must pass: tests, format, lint, dead code, tidy modules
	@test -z "$$($(TOOL) gofumpt -l -extra -modpath polar . | tee /dev/stderr)"
	@$(TOOL) golangci-lint run ./...
	@dead=$$($(TOOL) deadcode -test ./...); test -z "$$dead" || { echo "$$dead" >&2; exit 1; }
	@go mod tidy -e -diff 2>/dev/null && cd clients && go mod tidy -e -diff 2>/dev/null # -e: some tests of dependencies cannot be had

fuzz: modules ## every fuzz target (or those in FUZZDIRS) for FUZZTIME (30s)
	@for dir in $(FUZZDIRS); do \
		for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go 2>/dev/null | sed 's/func //'); do \
			echo "fuzzing $$dir $$f for $(FUZZTIME)"; go test ./$$dir -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x; \
		done; done

bench: build ## each figure beside its bar
	@go build -trimpath -o bin/bench ./bench
	@bin/bench -polar bin/polar

clean: ## remove what was built
	@rm -rf bin
