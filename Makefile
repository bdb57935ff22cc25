# Every target works from a fresh clone: it installs what it needs.
GO    ?= go
BIN   := bin
TESTS ?= ./...

.PHONY: build race deps test demo lab bench check fuzz clean

build: ## the commands, into bin/
	$(GO) build -o $(BIN)/ ./cmd/...
	@./scripts/preload $(BIN)

race: ## the commands with the race detector, for the lab
	$(GO) build -race -o $(BIN)/race/ ./cmd/...
	@./scripts/preload $(BIN)/race

deps: ## Debian packages that tests and the demo run against
	@./scripts/deps

test: deps build race ## every test, with the race detector
	$(GO) test -count=1 -run '^TestAllocations$$' ./mpi/internal/engine # not with the race detector, which allocates
	$(GO) test -race -count=1 -p 1 -timeout 40m $(TESTS) # one package at a time: labs and ranks fill two cores

demo: deps build ## two sites behind NATs, unmodified MPI programs across them
	$(GO) run ./integration/cmd/demo

lab: deps build ## the same network to try things in by hand
	$(GO) run ./integration/cmd/lab up

bench: deps build ## tables for docs/benchmarks.md
	$(GO) run ./integration/cmd/bench

check: ## format, vet, staticcheck, structure, 30 s of every fuzz target
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/house
	./scripts/fuzz 30s

clean:
	rm -rf $(BIN)
