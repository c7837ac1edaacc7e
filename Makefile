# subctl. "make help" lists the targets.

# One set of Go build flags everywhere: every other combination compiles all of
# Kubernetes again.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -buildvcs=false
export PATH        := $(CURDIR)/bin:$(PATH):/usr/local/go/bin:/usr/sbin:/sbin

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X subctl/internal/version.Version=$(VERSION)
IMAGE   := localhost/subctl:$(VERSION)
LAB     := scripts/lab/bin/lab

build: ## build bin/subctl, and bin/wireguard-go, which agents run where the kernel has no WireGuard
	go build -ldflags '$(LDFLAGS)' -o bin/subctl .
	go build -ldflags '-s -w' -o bin/wireguard-go golang.zx2c4.com/wireguard

demo: prereqs build lab image ## three real clusters, joined, carrying traffic (root)
	IMAGE=$(IMAGE) scripts/demo.sh

demo-down: ## take the demo, or any lab, down
	if [ -x $(LAB) ]; then $(LAB) down; fi
	rm -f kubeconfigs/broker-info.subm*

STAGES := prereqs build lab image vet lint deadcode generated unit test-kernel e2e
test: ## everything that proves it works (root)
	for stage in $(STAGES); do begin=$$(date +%s); $(MAKE) $$stage || exit 1; echo "make $$stage took $$(($$(date +%s) - begin)) s"; done

unit: export SUBCTL_REQUIRE_ROOT := 1
# The longest packages first: at the end, a processor would wait for them. At least four at a time, as tests wait for API servers and kernels: the longest one
# uses four tenths of a processor.
unit: build lab ## tests up to a real kernel and a real API server (root)
	go test -p $(shell n=$$(nproc); echo $$((n < 4 ? 4 : n))) -json -count=1 -timeout 30m ./cmd ./agent ./dataplane/kernel ./broker/... ./... | go run ./scripts/hostile -least 80
	$(MAKE) -C scripts/lab test

hostile: build lab ## what attackers try: a table of cases, and how many reach their goal; part of unit (root)
	SUBCTL_REQUIRE_ROOT=1 go test -json -count=1 -run '^TestHostile' $$(git grep -l 'func TestHostile' '*_test.go' | xargs dirname | sort -u | sed 's,^,./,') | go run ./scripts/hostile -least 80

# Each fuzz test runs for so long, one after another.
FUZZTIME := 10m
fuzz: ## fuzz all parsers of what others write
	git grep -o 'func Fuzz[A-Za-z]*' '*_test.go' | sed -E 's,^(.*)/[^/]*:func (.*)$$,./\1 \2,' | while read dir name; do go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) $$dir || exit 1; done

test-kernel: build ## tests on a kernel with WireGuard and ESP: Debian's, in QEMU
	go run ./scripts/testkernel

# A setting of one end-to-end test on make's command line (make e2e E2E_GLOBALNET=wide) must not reach the environment of the others.
unexport E2E_CNI E2E_GLOBALNET
e2e: build lab image ## tests in the lab, with real pods (root)
	SUBCTL_REQUIRE_ROOT=1 IMAGE=$(IMAGE) go test -count=1 -timeout 90m -tags e2e -v ./scripts/e2e
	$(MAKE) e2e-cni
	$(MAKE) e2e-globalnet
	$(MAKE) e2e-sdewan
	$(MAKE) e2e-services

e2e-long: export E2E_LONG := 1
e2e-long: e2e ## the same with the tests that take minutes: an hour and a half in all (root)

# The CNI of each of the two clusters, and the mode of its rules: see scripts/e2e/cni_test.go.
E2E_CNI := flannel-vxlan/iptables flannel-host-gw/nftables
e2e-cni: build lab image ## tests in the lab, with flannel (root)
	SUBCTL_BENCH= E2E_CNI='$(E2E_CNI)' SUBCTL_REQUIRE_ROOT=1 IMAGE=$(IMAGE) go test -count=1 -timeout 10m -tags e2e -run '^TestCNI$$' -v ./scripts/e2e

# "churn" runs only the step in which pods and Services come and go. "wide" takes four clusters and a quarter of an hour, and more inotify instances than
# most machines allow: sysctl fs.inotify.max_user_instances=512
E2E_GLOBALNET := 1
e2e-globalnet: build lab image ## tests in the lab, with clusters that use the same networks (root)
	E2E_GLOBALNET=$(E2E_GLOBALNET) SUBCTL_REQUIRE_ROOT=1 IMAGE=$(IMAGE) go test -count=1 -timeout 30m -tags e2e -run '^TestGlobalnet$$' -v ./scripts/e2e

e2e-sdewan: build lab image ## SD-EWAN in the lab: a site with two uplinks, a firewall and tunnels (root)
	SUBCTL_BENCH= E2E_SDEWAN=1 SUBCTL_REQUIRE_ROOT=1 IMAGE=$(IMAGE) go test -count=1 -timeout 15m -tags e2e -run '^TestSDEWAN$$' -v ./scripts/e2e

e2e-services: build lab image ## tests in the lab: Services of other clusters, by name (root)
	SUBCTL_BENCH= E2E_SERVICES=1 SUBCTL_REQUIRE_ROOT=1 IMAGE=$(IMAGE) go test -count=1 -timeout 20m -tags e2e -parallel 6 -run '^Test(Services.*|Conformance)$$' -v ./scripts/e2e

# Each failure of a gateway happens so often, under each of these cables, with so many gateways per cluster, while the API servers are up, and down. docs/measurements/failover.json has each
# run, and runs of the same commit of what agents consist of (PROGRAM) count: so this may be stopped, and continued.
FAILOVER_RUNS     := 20
FAILOVER_CABLES   := vxlan,vxlan+wireguard
FAILOVER_GATEWAYS := 2,3
FAILOVER_API      := up,down
PROGRAM            = main.go cmd/agent*.go go.mod go.sum Dockerfile ':!*_test.go' ':!*/testdata/*' \
                     $(shell GOOS=linux go list -deps -f '{{if not .Standard}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}' ./agent)
FAILOVER_COMMIT    = $(shell git diff --quiet HEAD -- $(PROGRAM) && git log -1 --format=%h -- $(PROGRAM))
failover: build lab image ## what failures of a gateway cost; writes docs/measurements/failover.json and the table in docs/measurements/failover.md (root)
	E2E_FAILOVER=$(FAILOVER_RUNS) E2E_FAILOVER_CABLES=$(FAILOVER_CABLES) E2E_FAILOVER_GATEWAYS=$(FAILOVER_GATEWAYS) E2E_FAILOVER_API=$(FAILOVER_API) E2E_FAILOVER_JSON=docs/measurements/failover.json E2E_FAILOVER_COMMIT=$(FAILOVER_COMMIT) \
	SUBCTL_REQUIRE_ROOT=1 IMAGE=$(IMAGE) go test -count=1 -timeout 24h -tags e2e -run '^TestFailover$$' -v ./scripts/e2e; status=$$?; go run ./scripts/faildoc docs/measurements && exit $$status

e2e-failover: build lab image ## each failure of a gateway once, in a lab of its own; part of e2e (root)
	E2E_FAILOVER=1 SUBCTL_REQUIRE_ROOT=1 IMAGE=$(IMAGE) go test -count=1 -timeout 20m -tags e2e -run '^TestFailover$$' -v ./scripts/e2e

# Each failure so often, from the point of view of clients that use the name of a Service: as failover, this may be stopped, and continued. E2E_SERVICE_FAULTS names faults, if not
# all are wanted. E2E_LONG=1 also cuts the broker for 10 minutes.
SERVICE_RUNS := 20
service-failures: build lab image ## what failures cost clients of Services; writes docs/measurements/services.json and the table in docs/measurements/services.md (root)
	E2E_SERVICE_FAILURES=$(SERVICE_RUNS) E2E_SERVICE_JSON=docs/measurements/services.json E2E_SERVICE_COMMIT=$(FAILOVER_COMMIT) SUBCTL_BENCH= \
	SUBCTL_REQUIRE_ROOT=1 IMAGE=$(IMAGE) go test -count=1 -timeout 24h -tags e2e -run '^TestServiceFailures$$' -v ./scripts/e2e; status=$$?; go run ./scripts/faildoc docs/measurements && exit $$status

BENCH := $(CURDIR)/dist/benchmarks.json
bench: export SUBCTL_BENCH := $(BENCH)
bench: prereqs build lab ## measure; writes docs/measurements/benchmarks.md and docs/measurements/benchmarks.json, and fails if a target was missed (root)
	mkdir -p dist && rm -f $(BENCH)
	go test -p 1 ./agent ./agent/dns ./services ./policy ./cable/... ./broker/exchange ./sdewan/cnf/agent ./sdewan/cnf/server ./sdewan/controller ./sdewan/webhook -run '^$$' -bench . -benchtime 1x -timeout 60m
	SUBCTL_REQUIRE_ROOT=1 go test -count=1 -p 1 ./agent ./broker/exchange -run '^(TestLeakMatrix|TestRandomLoss)$$' -timeout 30m
	go run ./scripts/testkernel -bench .
	$(MAKE) e2e-long
	go run ./scripts/benchdoc $(BENCH) docs/measurements

vet: ## go vet, and builds for Linux, macOS and Windows
	go vet ./... && go vet -tags e2e ./scripts/...
	for os in darwin windows; do GOOS=$$os go build -o /dev/null . && GOOS=$$os go vet . ./cmd || exit 1; done

# Linters that are programs of their own take three minutes together, also on a new machine: a runner of many takes half an hour to compile. staticcheck.conf
# says what it does not mind. Errors of Close, Remove and Fprint have nobody to be told to.
lint: ## gofumpt, staticcheck, ineffassign, errcheck, misspell
	@files=$$(go run mvdan.cc/gofumpt@v0.12.0 -l -modpath subctl .) || exit 1; test -z "$$files" || { echo "run gofumpt -w -modpath subctl on $$files" >&2; exit 1; }
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	go run github.com/gordonklaus/ineffassign@v0.2.0 ./...
	go run github.com/kisielk/errcheck@v1.30.0 -ignoretests -ignore '^(Close|Remove|RemoveAll|Fprint.*)$$' ./...
	git ls-files '*.go' '*.md' | xargs go run github.com/client9/misspell/cmd/misspell@v0.3.4 -error -i nmae,defualt

# Functions that neither the program nor a test reaches, on Linux. In tests there may be methods that only a type constraint asks for.
DEADCODE := go run golang.org/x/tools/cmd/deadcode@v0.52.0
deadcode: ## fail if there are functions that nothing calls
	@found=$$($(DEADCODE) -test ./...) || exit 1; dead=$$(printf '%s' "$$found" | grep -v '_test.go:'); test -z "$$dead" || { printf 'nothing calls these:\n%s\n' "$$dead" >&2; exit 1; }

# The packages whose tests need neither root nor the lab; others skip what they cannot do.
PURE := . ./api/... ./policy/... ./services/... ./globalnet/... ./dataplane ./cable ./cable/keys ./cable/natdiscovery ./broker/trust \
        ./agent/role/... ./agent/mesh/... ./internal/... ./sdewan/rest ./sdewan/view
check: ## before each commit: build, vet, lint, pure tests, golden files; no root
	go build ./... && $(MAKE) vet lint
	go test $(PURE)

# The race detector needs cgo, and so a second build of all that these packages import.
RACE := ./agent/parts ./agent/probe ./agent/dns ./broker/exchange ./sdewan/controller ./sdewan/cnf/agent ./internal/...
race: export CGO_ENABLED := 1
race: build lab ## the packages with goroutines of their own, under the race detector
	go test -race -count=1 -timeout 30m $(RACE)

generate: ## deepcopy functions, CRDs, and the pages of docs/ that say so at their top
	go tool controller-gen object crd:crdVersions=v1 paths=./api/submariner/... output:crd:dir=api/crds
	go tool controller-gen object crd:crdVersions=v1 paths=./api/sdewan/... output:crd:dir=api/crds/sdewan
	go run ./scripts/gendocs

generated: generate ## fail if what is generated was not committed
	@changes=$$(git status --porcelain -- api docs/cli $$(grep -rl '^<!-- generated' docs)); \
	test -z "$$changes" || { printf 'commit what "make generate" has changed:\n%s\n' "$$changes" >&2; exit 1; }

golden: ## rewrite the golden files; read the diff
	go test . ./agent/mesh ./cluster ./cmd ./broker ./cable/... -update

lab: ## build the lab
	$(MAKE) -C scripts/lab

lab-up: prereqs lab ## three clusters without subctl (root)
	$(LAB) up --clusters 3 --nodes 2

lab-down: demo-down ## take the lab down

image: build lab ## the agents' image, as an OCI archive: dist/subctl.tar
	scripts/image/build.sh bin/subctl bin/wireguard-go $(IMAGE) dist/subctl.tar

prereqs: ## install the Debian packages that the lab and the tests need (root)
	scripts/prereqs.sh

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

.PHONY: build check deadcode demo demo-down test unit test-kernel e2e e2e-long e2e-cni e2e-failover e2e-globalnet e2e-sdewan e2e-services failover hostile fuzz bench vet lint generate generated golden lab lab-up lab-down image prereqs race service-failures help
