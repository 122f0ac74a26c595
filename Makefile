# Everything that a developer or a user runs. Each target works from a clean clone.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check deny e2e test-integrations chart disasters soak bench cluster-up cluster-down images crd

# Errors tell what went wrong in words.
export RUST_LIB_BACKTRACE ?= 0
export ELASTI_CLUSTER ?= elasti

CARGO := cargo --locked
OUT := target/$(shell rustc --print host-tuple)
CLUSTER := $(OUT)/debug/elasti-cluster
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/elasti/tools
CERTIFICATES := /etc/ssl/certs/ca-certificates.crt
SAY := @printf '\n==> %s\n'

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: check deny e2e ## Everything: pure tests, lints, licences, and the tests on a real cluster

check: ## Format, lints, docs and pure tests; needs no cluster
	$(SAY) "Checking format, lints, docs and pure tests"
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets -- $(if $(CI),-D warnings)
	RUSTDOCFLAGS="$(if $(CI),-D warnings)" $(CARGO) doc --quiet --workspace --no-deps
	$(CARGO) test --quiet --workspace

deny: $(TOOLS)/bin/cargo-deny ## Licences, sources and duplicates of what we depend on
	$(SAY) "Checking licences, sources and duplicates"
	$< --log-level error check licenses sources bans

e2e: $(CLUSTER) prometheus ## The tests on a real cluster: a local one, or the one of KUBECONFIG
	$(SAY) "Testing on $(if $(KUBECONFIG),the cluster of KUBECONFIG,a local cluster that is removed afterwards)"
	@export ELASTI_CLUSTER=make-e2e; \
	$(if $(KUBECONFIG),,trap '$(CLUSTER) down' EXIT; $(CLUSTER) up;) \
	$(CARGO) test --quiet --package elasti-e2e --test system -- --ignored --test-threads=4 $(if $(KUBECONFIG),operator::); \
	$(CARGO) test --quiet --package elasti-e2e --package elasti-runtime --package elasti-operator \
	  --test api --test cluster --test lease --test prometheus $(if $(KUBECONFIG),,--test lifecycle --test outage) -- --ignored

test-integrations: $(CLUSTER) prometheus haproxy nginx ## The same beside the real KEDA and Argo Rollouts, built once (15 minutes), and behind nginx and haproxy
	$(SAY) "Testing beside KEDA and Argo Rollouts, and behind nginx and haproxy, on a local cluster that is removed afterwards"
	@export ELASTI_CLUSTER=make-integrations; unset KUBECONFIG; \
	trap '$(CLUSTER) down' EXIT; $(CLUSTER) up; \
	$(CARGO) test --quiet --package elasti-e2e --test integrations -- --ignored --test-threads=3

chart: $(CLUSTER) $(TOOLS)/bin/helm ## The Helm chart: what it renders, and its life on local clusters that are removed afterwards
	$(SAY) "Testing the chart"
	@unset KUBECONFIG; HELM=$(TOOLS)/bin/helm $(CARGO) test --quiet --package elasti-e2e --test chart -- --ignored --test-threads=1

disasters: $(CLUSTER) prometheus ## Nothing is lost while parts of a local cluster are killed at random (ELASTI_SEED replays)
	$(if $(KUBECONFIG),@echo "KUBECONFIG names a cluster: none of its parts is killed",$(CARGO) test --package elasti-e2e --test disasters -- --ignored --nocapture)

soak: $(CLUSTER) prometheus ## The same for hours: make soak MINUTES=120
	$(CARGO) build --workspace --bins
	@$(OUT)/debug/elasti-soak --minutes $(or $(MINUTES),120)

demo: prometheus ## See it work on a local cluster: asleep, woken by a visitor, out of the path
	$(SAY) "Building everything (five minutes the first time)"
	$(CARGO) build --workspace --bins
	@$(OUT)/debug/elasti-demo

bench: haproxy ## How long the local cluster takes to come and go, and what operator and resolver cost (35 minutes)
	$(SAY) "Building operator, resolver and what measures them (six minutes the first time)"
	$(CARGO) build --quiet --release --package elasti-cluster --package elasti-operator --package elasti-resolver --package elasti-e2e --bins
	@hack/bench $(OUT)/release

cluster-up: $(CLUSTER) ## Start the local cluster, or find it running
	$(CLUSTER) up

cluster-down: $(CLUSTER) ## End the local cluster and remove all that belongs to it
	$(CLUSTER) down

images: $(CLUSTER) $(CERTIFICATES) ## Write the images to target/images
	$(SAY) "Building and writing images (six minutes the first time)"
	$(CARGO) build --quiet --release --package elasti-operator --package elasti-resolver --package elasti-e2e --bins
	mkdir -p target/images
	@image() { $(CLUSTER) image elasti.local/$$1:latest $(OUT)/release/elasti-$$1 target/images/$$1.tar "$${@:2}"; }; \
	image operator --link /manager --certificates $(CERTIFICATES); \
	image resolver --link /resolver --certificates $(CERTIFICATES); \
	image echo
	@ls -l target/images

crd: ## Print the CRD anew after a change of the API
	$(CARGO) run --quiet --package elasti-cli crd > config/crd/elastiservices.yaml

$(CERTIFICATES):
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates >/dev/null

.PHONY: prometheus haproxy nginx
prometheus: PACKAGES := prometheus victoria-metrics
haproxy: PACKAGES := haproxy
nginx: PACKAGES := nginx
prometheus haproxy nginx:
	@for package in $(PACKAGES); do \
	  command -v $$package >/dev/null || { \
	    echo "Installing $$package"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$package >/dev/null; \
	  }; \
	done

.PHONY: $(CLUSTER)
$(CLUSTER):
	$(if $(wildcard $(CLUSTER)),,$(SAY) "Building elasti-cluster, the first time (two minutes)")
	@$(CARGO) build --quiet --package elasti-cluster --package elasti-operator --package elasti-resolver

$(TOOLS)/bin/cargo-deny:
	$(SAY) "Installing cargo-deny, once for this user (five minutes)"
	cargo install --quiet --locked --version 0.20.2 --root $(TOOLS) cargo-deny

# With the Go on the PATH, or the one that a local cluster gets for itself.
$(TOOLS)/bin/helm: | $(CLUSTER)
	$(SAY) "Installing helm, once for this user (five minutes)"
	@own=$(dir $(TOOLS))go/go/bin; export PATH=$$PATH:$$own ELASTI_CLUSTER=make-chart; \
	command -v go >/dev/null || { $(CLUSTER) up; $(CLUSTER) down; }; \
	GOBIN=$(TOOLS)/bin GOTOOLCHAIN=auto nice -n 19 go install helm.sh/helm/v3/cmd/helm@v3.19.0
