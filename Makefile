SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

version := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
build := CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$(version)"

# All packages but those that run real Kafka.
units = $$(go list ./... | grep -vE '/kconsume/test(/|$$)')

# The programs on real Kafka that prove what is promised.
chaos = $(build) -o build/chaos/ ./test/chaos ./test/chaos/handler && build/chaos/chaos -kconsume build/kconsume -handler build/chaos/handler

FUZZTIME ?= 30s
MINUTES ?= 15
ARGS ?=
SEEDS ?= 100
FIRST_SEED ?= 0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: dev
dev: build ## run kconsume on an embedded broker with sample records; ARGS="…" are its flags
	build/kconsume dev $(ARGS)

.PHONY: check
check: need lint ## install what the tests need, then lint and run all tests, as CI does
	@tools/check.sh $(units)

.PHONY: build
build: ## build kconsume and the example handlers into build/
	$(build) -o build/kconsume ./cmd/kconsume
	$(build) -o build/handlers/kconsume-handler-orders ./plugins/examples/orders
	$(build) -o build/handlers/kconsume-handler-postgres ./plugins/examples/postgres

.PHONY: test
test: ## run the tests that need nothing but Go
	go test $(units)

.PHONY: race
race: ## the same with the race detector
	go test -race $(units)

.PHONY: suite
suite: need ## run the tests on real Kafka
	go test -count=1 -p 1 -timeout 20m ./test/...

.PHONY: sim
sim: ## play SEEDS simulated histories from FIRST_SEED on; ARGS=-planted: see that planted bugs are caught
	go run ./test/sim/runner -seeds $(SEEDS) -first $(FIRST_SEED) $(ARGS)

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "run gofmt -w on: $$unformatted"; exit 1; }
	go vet ./... && go -C tools vet ./... && go -C test/kubernetes vet ./...
	go -C tools build -o ../build/staticcheck honnef.co/go/tools/cmd/staticcheck
	build/staticcheck ./... && (cd tools && ../build/staticcheck ./...) && cd test/kubernetes && ../../build/staticcheck ./...

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	tools/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: need build ## micro benchmarks, then throughput on real Kafka next to kafka-go's Reader
	go test -run '^$$' -bench . -benchmem ./engine/... ./plugin/...
	$(build) -o build/bench/ ./bench/...
	build/bench/line -kconsume build/kconsume -reader build/bench/reader -handler build/bench/noop $(ARGS)

.PHONY: scale
scale: need build ## list a million dead letters by what they failed with, beside 5,000 records a second
	$(build) -o build/bench/ ./bench/...
	build/bench/dlq -kconsume build/kconsume -handler build/bench/latency $(ARGS)

.PHONY: chaos
chaos: need build ## kill, freeze and stop everything for MINUTES on real Kafka, and account for every record
	@$(chaos) -duration $(MINUTES)m $(ARGS)

.PHONY: deploy
deploy: need build ## replace three members one after another under load on real Kafka
	@$(chaos) -mode deploy -rate 2000 $(ARGS)

.PHONY: weigh
weigh: need build ## a daemon's memory with a million records parked, and what it takes when idle
	@$(chaos) -mode parked $(ARGS)
	@$(chaos) -mode idle $(ARGS)

.PHONY: halved
halved: need build ## forward a batch of 100 with the broker stopped halfway
	@$(chaos) -mode halved $(ARGS)

.PHONY: operate
operate: need ## kill a daemon at every step of a replay on real Kafka, and race two operators; it takes half an hour
	KCONSUME_OPERATE_FULL=1 go test -v -count=1 -timeout 60m -run 'Killed|TwoOperators' ./test/operate

.PHONY: board
board: need ## play a bad rollout on real Kafka for six minutes and draw the dashboard of it; ARGS=-again draws the last one anew
	go run ./test/observe/board $(ARGS)
	go run ./test/observe/board -again -at 225s -rows 21 -picture docs/img/dashboard-failing.png

.PHONY: generate
generate: ## generate the code of the handler protocol, and the alerts for Kubernetes
	go -C tools run ./genproto ../plugin/proto .. github.com/kconsume/kconsume handler.proto
	go -C tools run ./promrule < packaging/prometheus/kconsume.rules.yml > packaging/kubernetes/alerts/prometheusrule.yaml

.PHONY: package
package: ## write deb and rpm for amd64 and arm64 to dist/, and SHA256SUMS
	tools/package.sh

.PHONY: package-test
package-test: need ## install, run, upgrade and purge the packages in a Debian root with a systemd of its own, and show it; as root
	go test -count=1 -v -timeout 20m ./test/package

.PHONY: image
image: ## write the container image for amd64 and arm64 to dist/, without a container engine
	tools/image.sh

.PHONY: sbom
sbom: ## write to dist/ what the binaries are made of
	tools/sbom.sh

.PHONY: dist
dist: ## make everything that is shipped in dist/, with checksums
	tools/dist.sh

.PHONY: vuln
vuln: ## look for known vulnerabilities in what is called
	tools/vuln.sh ./cmd/... ./engine/... ./plugin/... ./plugins/...

.PHONY: manifests
manifests: ## check the manifests for Kubernetes against its types
	go -C test/kubernetes test ./...

.PHONY: need
need: # what the tests need beside Go: a C compiler for the race detector, Java and Maven for Kafka, kcat, the languages of handlers, a database, a browser, Prometheus, the tools of packages, shells
	@tools/need.sh gcc=build-essential javac=default-jdk-headless mvn=maven kcat=kcat python3=python3 node=nodejs npm=npm \
	  pg_ctlcluster=postgresql chromium=chromium jq=jq curl=curl promtool=prometheus prometheus-alertmanager=prometheus-alertmanager \
	  debootstrap=debootstrap systemd-nspawn=systemd-container systemd-analyze=systemd lintian=lintian rpm=rpm rpmlint=rpmlint \
	  zsh=zsh fish=fish man=man-db

.PHONY: clean
clean: ## delete what was built
	rm -rf build dist
