# One set of Go build flags everywhere: every other combination compiles
# Kubernetes again.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -buildvcs=false
VERSION            := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS            := -s -w -X subctl/internal/version.Version=$(VERSION)

build: ## build bin/subctl
	go build -ldflags '$(LDFLAGS)' -o bin/subctl .

generate: ## deepcopy functions and CRDs from api/
	go tool controller-gen object crd:crdVersions=v1,maxDescLen=0 paths=./api/submariner/... output:crd:dir=api/crds

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: build generate help
