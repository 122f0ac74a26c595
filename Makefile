# Everything that a developer or a user runs. Each target works from a clean clone.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check deny e2e test-integrations chart monitoring disasters soak bench cluster-up cluster-down binaries images rootfs containerfile sbom release-check crd rules

# Errors tell what went wrong in words.
export RUST_LIB_BACKTRACE ?= 0
export ELASTI_CLUSTER ?= elasti

CARGO := cargo --locked
HOST := $(shell rustc --print host-tuple)
OUT := target/$(HOST)
CLUSTER := $(OUT)/debug/elasti-cluster
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/elasti/tools

# For which machines binaries and images are: amd64 or arm64, by default as this one.
CPU := $(word 1,$(subst -, ,$(HOST)))
CPU_amd64 := x86_64
CPU_arm64 := aarch64
ARCH := $(if $(filter aarch64,$(CPU)),arm64,amd64)
TARGET := $(or $(CPU_$(ARCH)),$(error ARCH must be amd64 or arm64, not '$(ARCH)'))$(HOST:$(CPU)%=%)
CROSS := $(filter-out $(HOST),$(TARGET))
# Where the sources of crates lie differs from machine to machine, and would be in the binaries.
RELEASE := $(CARGO) build --quiet --release --target $(TARGET) \
  $(if $(CROSS),--config 'target.$(TARGET).linker="$(CPU_$(ARCH))-linux-gnu-gcc"') \
  --config 'target.$(TARGET).rustflags=["--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo"]'
CERTIFICATES := /etc/ssl/certs/ca-certificates.crt

VERSION := $(shell sed -n '/^\[workspace.package\]/,/^$$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
REVISION = $(shell git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null)
TAG := latest
IMAGES := target/images$(CROSS:%=/$(ARCH))
ROOTFS := target/$(TARGET)/rootfs
SBOM := target/sbom$(CROSS:%=/$(ARCH))
ARCHES := amd64 arm64
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
	$(if $(KUBECONFIG),: "$${ELASTI_ECHO_IMAGE:?is to name the image of make images that the cluster of KUBECONFIG has}";) \
	$(if $(KUBECONFIG),export ELASTI_E2E_RUN=$$$$; trap "kubectl delete crd --wait=false --selector elasti-e2e=$$$$" EXIT;,trap '$(CLUSTER) down' EXIT; $(CLUSTER) up;) \
	$(CARGO) test --quiet --package elasti-e2e --test system -- --ignored --test-threads=5 $(if $(KUBECONFIG),operator::); \
	$(CARGO) test --quiet --package elasti-e2e --package elasti-runtime --package elasti-operator \
	  --test api --test cluster --test lease --test prometheus $(if $(KUBECONFIG),,--test lifecycle --test outage --test disasters --test demo) -- --ignored

test-integrations: $(CLUSTER) prometheus haproxy nginx ## The same beside the real KEDA and Argo Rollouts, built once (15 minutes), and behind nginx and haproxy
	$(SAY) "Testing beside KEDA and Argo Rollouts, and behind nginx and haproxy, on a local cluster that is removed afterwards"
	@export ELASTI_CLUSTER=make-integrations; unset KUBECONFIG; \
	trap '$(CLUSTER) down' EXIT; $(CLUSTER) up; \
	$(CARGO) test --quiet --package elasti-e2e --test integrations -- --ignored --test-threads=3

chart: $(CLUSTER) $(TOOLS)/bin/helm ## The Helm chart: what it renders, and its life on local clusters that are removed afterwards
	$(SAY) "Testing the chart"
	@unset KUBECONFIG; HELM=$(TOOLS)/bin/helm $(CARGO) test --quiet --package elasti-e2e --test chart --test permissions -- --ignored --test-threads=1

monitoring: $(CLUSTER) prometheus $(TOOLS)/bin/helm ## Alerts, dashboard and overlays: with a real Prometheus, on local clusters that are removed afterwards
	$(SAY) "Testing alerts, dashboard and overlays"
	@unset KUBECONFIG; HELM=$(TOOLS)/bin/helm $(CARGO) test --quiet --package elasti-e2e --test monitoring -- --ignored --test-threads=1

disasters: export ELASTI_CYCLES ?= $(or $(CYCLES),50)
disasters: $(CLUSTER) prometheus ## Nothing is lost in 50 sleeps while parts of a local cluster are killed at random (ELASTI_SEED replays)
	$(if $(KUBECONFIG),@echo "KUBECONFIG names a cluster: none of its parts is killed",$(CARGO) test --package elasti-e2e --test disasters -- --ignored --nocapture)

soak: $(CLUSTER) prometheus ## The same for hours: make soak MINUTES=120
	$(CARGO) build --workspace --bins
	@$(OUT)/debug/elasti-soak --minutes $(or $(MINUTES),120)

demo: $(if $(KUBECONFIG),,prometheus) ## See it work on a local cluster: asleep, woken by a visitor, out of the path
	$(SAY) "Building everything (five minutes the first time)"
	$(CARGO) build --workspace --bins
	@$(OUT)/debug/elasti-demo

bench: prometheus haproxy nginx h2load ## How long requests wait, what is lost, what operator and resolver cost: 15 minutes, written to docs/benchmarks
	$(SAY) "Building operator, resolver and what measures them (six minutes the first time)"
	$(CARGO) build --quiet --release --package elasti-operator --package elasti-resolver --bins
	$(CARGO) build --quiet --profile measure --package elasti-cluster --package elasti-e2e --bin elasti-cluster --bin elasti-echo \
	  --bin elasti-wake-figures --bin elasti-resolver-figures --bin elasti-figures --bin elasti-benchmarks
	@ln -f $(OUT)/release/elasti-{operator,resolver} $(OUT)/measure
	@hack/bench $(OUT)/measure '$(REVISION)' docs/benchmarks

cluster-up: $(CLUSTER) ## Start the local cluster, or find it running
	$(CLUSTER) up

cluster-down: $(CLUSTER) ## End the local cluster and remove all that belongs to it
	$(CLUSTER) down

binaries: $(if $(CROSS),cross) ## Build what goes into images, for ARCH=amd64 or arm64
	$(SAY) "Building for $(ARCH) (six minutes the first time)"
	$(RELEASE) --package elasti-operator --package elasti-resolver --package elasti-e2e \
	  --bin elasti-operator --bin elasti-resolver --bin elasti-echo

images sbom: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)
images: $(CLUSTER) $(CERTIFICATES) binaries ## Write the images to target/images; ARCH=arm64: to target/images/arm64
	$(SAY) "Writing images to $(IMAGES)"
	mkdir -p $(IMAGES)
	@image() { $(CLUSTER) image elasti.local/$$1:$(TAG) target/$(TARGET)/release/elasti-$$1 $(IMAGES)/$$1.tar \
	  --label org.opencontainers.image.title="elasti-$$1" --label org.opencontainers.image.description="$$2" \
	  --label org.opencontainers.image.version=$(VERSION) --label org.opencontainers.image.licenses=Apache-2.0 \
	  $(REVISION:%=--label org.opencontainers.image.revision=%) "$${@:3}"; }; \
	image operator 'Decides when Kubernetes services sleep, and wakes them' --link /manager --certificates $(CERTIFICATES); \
	image resolver 'Holds the traffic of sleeping Kubernetes services until they are awake' --link /resolver --certificates $(CERTIFICATES); \
	image echo 'A small application to try Elasti on'
	@ls -l $(IMAGES)

rootfs: binaries $(CERTIFICATES)
	@rootfs() { \
	  install -D --target-directory=$(ROOTFS)/$$1 target/$(TARGET)/release/elasti-$$1; \
	  ln -sf /elasti-$$1 $(ROOTFS)/$$1$$2; \
	  install -D --mode=644 $(CERTIFICATES) $(ROOTFS)/$$1$(CERTIFICATES); }; \
	rootfs operator /manager; \
	rootfs resolver /resolver

containerfile: images rootfs buildah ## The Containerfile makes the images that make images writes
	$(SAY) "Building the Containerfile's images of the same binaries"
	@hack/containerfile $(dir $(ROOTFS)) $(IMAGES) $(ARCH) $(VERSION) '$(REVISION)'

sbom: $(TOOLS)/bin/cargo-cyclonedx ## Write what operator and resolver are made of to target/sbom, in CycloneDX
	@hack/sbom $< $(TARGET) $(SBOM)
	@ls -l $(SBOM)

release-check: $(TOOLS)/bin/helm ## Whether this commit can be released; its files, and their checksums (signed with RELEASE_KEY), in target/release-files
	$(SAY) "Checking version, changelog and git"
	@hack/release-check $(VERSION)
	@$(MAKE) --no-print-directory deny
	$(CARGO) test --quiet --package elasti-cli --test crd
	@for arch in $(ARCHES); do \
	  $(MAKE) --no-print-directory images sbom ARCH=$$arch TAG=$(VERSION) IMAGES=target/release-made/$$arch SBOM=target/release-made/$$arch; \
	done
	$(SAY) "Putting the files of the release together"
	@hack/release-files $< $(VERSION) target/release-made target/release-files $(ARCHES)
	@ls -l target/release-files

crd: ## Print the CRD anew after a change of the API
	$(CARGO) run --quiet --package elasti-cli crd > config/crd/elastiservices.yaml

rules: ## Write the PrometheusRule anew after a change of the alerts
	@cd config/monitoring; rule=$$(sed '/^spec:/q' prometheusrule.yaml; sed '/^#/d; s/^./  &/' alerts.yaml); echo "$$rule" > prometheusrule.yaml

$(CERTIFICATES):
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -oDPkg::Lock::Timeout=600 -y -qq --no-install-recommends ca-certificates >/dev/null

# What compiles for the other architecture: Rust's library for it, and Debian's compiler.
.PHONY: cross
cross: COMPILER := $(subst _,-,$(CPU_$(ARCH)))-linux-gnu
cross:
	@rustup target list --installed | grep -qx $(TARGET) || rustup target add $(TARGET)
	@command -v $(CPU_$(ARCH))-linux-gnu-gcc >/dev/null || { \
	  echo "Installing gcc-$(COMPILER)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -oDPkg::Lock::Timeout=600 -y -qq --no-install-recommends gcc-$(COMPILER) libc6-dev-$(ARCH)-cross >/dev/null; \
	}

.PHONY: prometheus haproxy nginx h2load buildah
prometheus: PACKAGES := prometheus victoria-metrics
haproxy: PACKAGES := haproxy
nginx: PACKAGES := nginx libnginx-mod-stream
h2load: PACKAGES := nghttp2-client
buildah: PACKAGES := buildah
prometheus haproxy nginx h2load buildah:
	@for package in $(PACKAGES); do \
	  command -v $$package >/dev/null || dpkg-query --show $$package >/dev/null 2>&1 || { \
	    echo "Installing $$package"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -oDPkg::Lock::Timeout=600 -y -qq --no-install-recommends $$package >/dev/null; \
	  }; \
	done

.PHONY: $(CLUSTER)
$(CLUSTER):
	$(if $(wildcard $(CLUSTER)),,$(SAY) "Building elasti-cluster, the first time (two minutes)")
	@$(CARGO) build --quiet --package elasti-cluster --package elasti-operator --package elasti-resolver

$(TOOLS)/bin/cargo-deny:
	$(SAY) "Installing cargo-deny, once for this user (five minutes)"
	cargo install --quiet --locked --version 0.20.2 --root $(TOOLS) cargo-deny

$(TOOLS)/bin/cargo-cyclonedx:
	$(SAY) "Installing cargo-cyclonedx, once for this user (two minutes)"
	cargo install --quiet --locked --version 0.5.9 --root $(TOOLS) cargo-cyclonedx

# With the Go on the PATH, or the one that a local cluster gets for itself.
$(TOOLS)/bin/helm: | $(CLUSTER)
	$(SAY) "Installing helm, once for this user (five minutes)"
	@own=$(dir $(TOOLS))go/go/bin; export PATH=$$PATH:$$own ELASTI_CLUSTER=make-chart; \
	command -v go >/dev/null || { $(CLUSTER) up; $(CLUSTER) down; }; \
	GOBIN=$(TOOLS)/bin GOTOOLCHAIN=auto nice -n 19 go install helm.sh/helm/v3/cmd/helm@v3.19.0
