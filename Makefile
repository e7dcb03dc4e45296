# arbe's development. `make` lists what there is.
#
# Tools are pinned here and kept in .tools. Nothing is installed for the whole machine, except the few
# system packages that tests need (see `prerequisites`), and those only as root on a system with apt.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

TOOLS := $(CURDIR)/.tools
export PATH := $(TOOLS)/bin:$(PATH)

.PHONY: help
help: ## List what make can do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# What arbe version says: the tag, or the commit. Without a repository Go's own stamp is used.
STAMPED := github.com/arbe-dev/arbe/internal/version
VERSION ?= $(shell git describe --tags --match 'v*' --always --dirty 2>/dev/null)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)

# Without the tag, gRPC's pages of traces run templates, which call methods by their names, so that the linker would keep
# every exported method of every package in the program. It is for every go command here, so that all share what they compile.
export GOFLAGS += -tags=grpcnotrace
# Nothing of ours needs C, so that builds, linters and tests share one compilation; tests with -race have one of their own.
export CGO_ENABLED := 0

# The compiler and the linters collect garbage less often than by default, which saves a fifth of their time. They take up to
# 2.5 GB of memory.
MORE_MEMORY := GOGC=400
GO := $(MORE_MEMORY) go

.PHONY: build
build: ## Build bin/arbe
	@$(GO) build -ldflags '-s -w $(if $(VERSION),-X $(STAMPED).stamp=$(VERSION)) $(if $(COMMIT),-X $(STAMPED).commit=$(COMMIT))' -o bin/arbe ./cmd/arbe

# The API that was promised to programs: docs/compatibility.md.
PROMISE := proto/promise.binpb

# The archives of a commit are the same bytes wherever they are built: paths are left out, and files have the commit's time.
ARCHES := amd64 arm64
SBOM := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
.PHONY: release
release: tools build ## Build dist/: static programs for Linux on amd64 and arm64, manual pages, bills of materials, and checksums
	@rm -rf dist && mkdir dist
	@if git describe --exact-match --match 'v*' >/dev/null 2>&1; then \
		buf build --exclude-source-info --path proto/arbe -o dist/api.binpb; \
		cmp -s dist/api.binpb $(PROMISE) || { echo 'a release promises its API: run make promise, commit, and tag that commit'; exit 1; }; \
		rm dist/api.binpb; \
	fi
	@go run ./cmd/arbe/man -arbe bin/arbe -out dist/man -version '$(or $(VERSION),devel)' -date "$$(git log -1 --format=%cs)"
	@tag=$$(git describe --exact-match --match 'v*' 2>/dev/null) || exit 0; \
		git tag --points-at HEAD | grep -qxF "proto/$$tag" || { echo "the Go client is a module of its own: git tag proto/$$tag"; exit 1; }
	@for arch in $(ARCHES); do \
		name=arbe_$(or $(VERSION),devel)_linux_$$arch; mkdir dist/$$name; \
		GOARCH=$$arch $(GO) build -trimpath -ldflags '-s -w $(if $(VERSION),-X $(STAMPED).stamp=$(VERSION)) $(if $(COMMIT),-X $(STAMPED).commit=$(COMMIT))' -o dist/$$name/arbe ./cmd/arbe; \
		go run $(SBOM) bin -json -noserial -output dist/$$name.cdx.json dist/$$name/arbe 2>/dev/null; \
		cp -R LICENSE README.md docs dist/man dist/$$name; \
		tar -C dist --sort=name --mtime=@$$(git log -1 --format=%ct) --owner=0 --group=0 --numeric-owner -cf - $$name | gzip -n9 >dist/$$name.tar.gz; \
		rm -r dist/$$name; \
	done; rm -r dist/man
	@cd dist && sha256sum *.tar.gz *.cdx.json >SHA256SUMS && ls -lh

.PHONY: run
run: build ## Build arbe and start it here, with a database of its own
	@exec ./bin/arbe up

# The contract and the Go client are a module of their own, in proto, which ./... leaves out. Its packages are tested with the
# versions of the server's module; make check builds them with their own.
CLIENT := github.com/arbe-dev/arbe/proto

# The packages whose goroutines share memory. Their tests run with the race detector, which takes twice the time. The
# others start no goroutines, except web, cmd/arbe and chaos, which drive servers made of these. make race runs all tests with the
# detector. The slowest packages come first, so that none of them is left alone at the end; LONGEST lists the slowest of those
# that are tested without the detector.
RACED := ./internal/server ./internal/sandbox/local ./internal/dispatch ./internal/rpc ./internal/sandbox ./internal/command ./internal/httpd ./internal/door \
	./internal/model ./db/... ./internal/jobs ./internal/fair ./web/transcript ./web/guard ./internal/sandbox/local/... ./internal/turn \
	./internal/auth/... ./internal/secret/... ./internal/stream/... ./internal/live ./internal/push ./internal/subscription \
	./internal/blob/... ./internal/outbound ./internal/logging $(CLIENT)/arbe
LONGEST := ./web ./cmd/arbe ./internal/harness/all ./internal/runner ./internal/sandbox/docker ./internal/chaos ./internal/sandbox/daytona ./internal/sandbox/sprite

# Fuzz targets run with their seeds and what was found before, as tests. make fuzz mutates.
.PHONY: test
test: prerequisites build ts web/axe/node_modules agents ## Run every test, race detector and browser tests included, and list the slowest
	@others=$$(go list ./... $(CLIENT)/... | grep -vxF "$$(go list $(RACED))"); \
	go run ./db/dbtest/gotest -race -timeout 50m $(RACED) -- -timeout 50m $(LONGEST) $$others
	@cd web/script && node --test
	@cd proto/ts && ARBE_BIN=$(CURDIR)/bin/arbe npm test --silent

.PHONY: upgrade-test
upgrade-test: prerequisites ## Test a rolling upgrade from the version before, or OLDER=COMMIT, with servers of both on one database
	@ARBE_TEST_OLDER=$(or $(OLDER),before) ARBE_TEST_OLDER_DIR=$(TOOLS)/older go run ./db/dbtest/gotest -timeout 9m -run '^TestARollingUpgrade$$' ./internal/server

.PHONY: race
race: prerequisites build web/axe/node_modules agents ## Run every Go test with the race detector
	@go run ./db/dbtest/gotest -race -timeout 30m ./... $(CLIENT)/...

.PHONY: conformance
conformance: build internal/door/conformance/node_modules ## Run the official suite of the stream protocol
	@go run ./internal/door/conformance

internal/door/conformance/node_modules: internal/door/conformance/package-lock.json
web/axe/node_modules: web/axe/package-lock.json
internal/door/conformance/node_modules web/axe/node_modules:
	@cd $(@D) && npm ci --no-audit --no-fund --silent && touch node_modules

# The coding agents that the tests of harnesses and runners start, each at the version that its harness installs. They take 1.3 GB.
AGENTS := $(patsubst %/package-lock.json,%/node_modules,$(wildcard internal/harness/harnesstest/programs/*/package-lock.json))
.PHONY: agents
agents: $(AGENTS)
internal/harness/harnesstest/programs/%/node_modules: internal/harness/harnesstest/programs/%/package-lock.json
	@cd $(@D) && npm ci --no-audit --no-fund --silent && touch node_modules

FOR ?= 10m
.PHONY: chaos
chaos: prerequisites ## Kill servers and Postgres, cut connections, fill disks at random: FOR=1h SEED=1
	@CGO_ENABLED=1 go test -race -timeout 0 -count 1 -v -run TestChaos ./internal/chaos -chaos.for $(FOR) $(if $(SEED),-chaos.seed $(SEED))

.PHONY: fuzz
fuzz: prerequisites ## Fuzz what reads untrusted bytes, each target for as long: FOR=10m TARGET=FuzzMarkdown
	@grep -rlE '^func $(or $(TARGET),Fuzz)' --include='*_test.go' cmd db internal proto web | xargs -r -n1 dirname | sort -u | while read -r dir; do \
		for target in $$(grep -hoE '^func $(or $(TARGET),Fuzz)[A-Za-z0-9_]*' $$dir/*_test.go | cut -c6-); do \
			echo "$$target in ./$$dir for $(FOR)"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FOR) ./$$dir; \
		done; \
	done

# The most bytes that bin/arbe may have. Lower it when the program becomes smaller.
BUDGET := 74000000

.PHONY: check
check: tools build ## Show that generated code is current and the linters are silent
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt on these'; exit 1; }
	@$(GO) vet ./... && cd proto && $(GO) vet ./...
	@export $(MORE_MEMORY) && staticcheck ./... && cd proto && staticcheck ./...
	@cd proto && go mod tidy -diff
	@size=$$(stat -c %s bin/arbe); test $$size -le $(BUDGET) || { \
		echo "bin/arbe has $$size bytes, more than the $(BUDGET) of BUDGET in the Makefile."; \
		echo "What a package adds: go tool nm -size -sort size on a build without -s. If a third more came at once, something calls"; \
		echo "methods by their names (text/template, reflect's Method): go build -ldflags=-dumpdep prints it as <ReflectMethod>."; \
		echo "slices.SortFunc adds 15 to 50 KB for each type of elements that are no pointers; sort.Slice adds nothing."; \
		exit 1; }
	@buf breaking --against $(PROMISE) --exclude-imports || { \
		echo 'This breaks programs that use the API: see docs/compatibility.md.'; \
		echo 'Keep the old name or number beside the new one, or, before 1.0, name the break in docs/compatibility.md and run make promise.'; \
		exit 1; }
	@state() { git diff HEAD | sha1sum; git ls-files -o --exclude-standard -z | xargs -0 -r sha1sum; }; \
	before=$$(state); $(MAKE) generate; \
	test "$$before" = "$$(state)" || { git status --short; echo 'generated code was not current: commit what make generate made'; exit 1; }

.PHONY: bench
bench: build ## Measure: appends, tails, reads, credentials, redaction, requests, commands, answers of models, turns of bots, sandboxes, runs of coding agents, their model calls, searches, inboxes, live pages (ratios within one run)
	@go test -run '^$$' -bench . -benchtime 2s -timeout 30m ./internal/stream ./internal/model ./internal/door ./internal/auth ./internal/secret ./internal/httpd ./internal/dispatch ./internal/run ./internal/gateway ./internal/harness/all ./internal/rpc ./internal/thread ./internal/inbox ./internal/sandbox/local ./internal/server ./web ./cmd/arbe

# What was added to the API may still change, until a release promises it.
.PHONY: promise
promise: tools ## Promise the API as it is now: before a release, and after a break that is meant
	@buf build --exclude-source-info --path proto/arbe -o $(PROMISE)

# --- Generated code: committed, so that `go build ./...` needs no generator. ---

.PHONY: generate
generate: tools ## Generate code from proto, SQL and templ, the page of settings and the catalog of models
	@buf lint && buf generate
	@cd proto && go run ./arbe/generate
	@sqlc generate
	@if command -v pg_dump >/dev/null; then go test ./db -run '^TestSchemaFile' -count 1 -schema.write >/dev/null; fi
	@go test ./internal/server -run '^TestSettingsPage' -count 1 -settings.write >/dev/null
	@go test ./internal/model -run '^TestCatalog' -count 1 -catalog.write >/dev/null
	@templ generate -path web -log-level error
	@esbuild web/script/arbe.js web/script/connection.js web/script/forms.js web/script/terminal.js web/script/sw.js --bundle --format=esm --minify --outdir=web/static --log-level=warning
	@go generate ./internal/sandbox/local ./internal/sandbox/remote ./internal/runner/program ./web/markup
	@install -m 644 $(DATASTAR)/bundles/datastar.js web/static/datastar.js
	@install -m 644 $(DATASTAR)/LICENSE.md web/static/datastar.LICENSE.md

# The Go programs that make runs. They are built in one module that requires ours, so that they take our versions of what they
# share with us and with each other. That halves the time to compile them.
define TOOLS_MOD
module tools

go 1.26

require (
	connectrpc.com/connect v1.21.1
	github.com/a-h/templ v0.3.977
	github.com/arbe-dev/arbe v0.0.0
	github.com/arbe-dev/arbe/proto v0.0.0
	github.com/sqlc-dev/sqlc v1.31.1
	github.com/sudorandom/protoc-gen-connect-openapi v0.25.2
	google.golang.org/protobuf v1.36.12
	honnef.co/go/tools v0.7.0
)

replace (
	github.com/arbe-dev/arbe => $(CURDIR)
	github.com/arbe-dev/arbe/proto => $(CURDIR)/proto
)
endef
GO_TOOLS := connectrpc.com/connect/cmd/protoc-gen-connect-go github.com/a-h/templ/cmd/templ github.com/sqlc-dev/sqlc/cmd/sqlc \
	github.com/sudorandom/protoc-gen-connect-openapi google.golang.org/protobuf/cmd/protoc-gen-go honnef.co/go/tools/cmd/staticcheck

$(TOOLS)/go/built: export GO_MOD = $(TOOLS_MOD)
$(TOOLS)/go/built: Makefile
	@echo 'building the Go tools'; mkdir -p $(@D) && cp go.sum $(@D) && cd $(@D) && printf '%s\n' "$$GO_MOD" >go.mod && \
		GOBIN=$(TOOLS)/bin $(GO) install -mod=mod $(GO_TOOLS) && touch $@

# module-dir MODULE@VERSION: where a module's files are, downloaded if need be.
module-dir = $(shell go mod download -json $(1) | sed -n 's/^\t"Dir": "\(.*\)",*$$/\1/p')
DATASTAR = $(call module-dir,github.com/starfederation/datastar@v1.0.2)
PROTOVALIDATE = $(call module-dir,github.com/bufbuild/protovalidate@v1.2.0)

.PHONY: tools
tools: $(TOOLS)/go/built proto/ts/node_modules $(TOOLS)/bin/buf $(TOOLS)/bin/esbuild $(TOOLS)/protovalidate/buf/validate/validate.proto

$(TOOLS)/bin/buf $(TOOLS)/bin/esbuild: | proto/ts/node_modules
	@mkdir -p $(@D) && ln -sf $(CURDIR)/proto/ts/node_modules/.bin/$(@F) $@

$(TOOLS)/protovalidate/buf/validate/validate.proto:
	@mkdir -p $(@D) && install -m 644 $(PROTOVALIDATE)/proto/protovalidate/buf/validate/validate.proto $@

proto/ts/node_modules: proto/ts/package-lock.json
	@command -v npm >/dev/null || { echo 'npm is missing: install Node.js 22 or later (the tests also run on 20)'; exit 1; }
	@cd proto/ts && npm ci --no-audit --no-fund --silent && touch node_modules

.PHONY: ts
ts: proto/ts/node_modules
	@cd proto/ts && npm run build --silent

# What tests need beyond Go and Node: name=package pairs of Debian. Installed when root, named otherwise. Tests of pages take half
# the time with Chromium's headless shell, which not every system has, so it is installed only where apt finds it.
.PHONY: prerequisites
prerequisites:
	@missing=; \
	for need in chromium=chromium runc=runc git=git mkfs.ext4=e2fsprogs; do \
		command -v $${need%%=*} >/dev/null || test -x /usr/sbin/$${need%%=*} || missing="$$missing $${need#*=}"; \
	done; \
	command -v postgres >/dev/null || ls -d /usr/lib/postgresql/*/bin >/dev/null 2>&1 || missing="$$missing postgresql"; \
	test -z "$$missing" && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing$$missing"; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing \
			$$(apt-cache pkgnames chromium-headless-shell) >/dev/null; \
	else \
		echo "tests need these installed:$$missing"; exit 1; \
	fi
