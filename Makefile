# qrnic: a thin front for the scripts of tools/ and tests/; each has --help.
# SPDX-License-Identifier: GPL-2.0-or-later

# Variables of the command line or the environment.
QEMU_VERSION ?= 10.0
DESTDIR ?=
PREFIX ?= /usr/local/lib/qrnic
SUITES ?=
OUT ?=
ONLY ?=
OP ?=
TREND ?=
GUEST_ROOT ?=
export QEMU_VERSION DESTDIR PREFIX

TARGETS := help qemu modules provider guest demo shell watch manual check \
	check-contract check-static check-unit check-qtest check-fuzz check-scenarios check-sweeps check-process check-labs check-versions check-guest \
	check-newest check-image check-packages check-experiments check-site \
	check-full check-debug \
	bench experiments install install-guest image packages site deps clean distclean
.PHONY: $(TARGETS)
.NOTPARALLEL:
# The script's own line is the message, so make prints no directories.
MAKEFLAGS += --no-print-directory

help:
	@echo "make demo            two guests with a qrnic each run RDMA programs (builds everything first)"
	@echo "make shell           an interactive guest with the whole RDMA user space"
	@echo "make watch           one message from doorbell to completion, step by step; OP=\"read\" for another operation"
	@echo "make check           the tests; SUITES=\"unit qtest\" for some of them"
	@echo "make check-contract, check-static, check-unit, check-qtest, check-fuzz, check-scenarios, check-sweeps, check-process, check-labs, check-versions, check-guest, check-image, check-packages, check-experiments, check-site"
	@echo "make check-full      also the long guest tests (storage, middleware, users of a device that fails)"
	@echo "make check-newest    the newest QEMU, Linux and rdma-core, and a guest with an IOMMU (builds them first)"
	@echo "make check-debug     guest tests on a kernel with lockdep, KASAN, ... (not in check: long)"
	@echo "make manual          the hardware manual as one page; prints its URL"
	@echo "make site            all pages as a static site with search; OUT=DIR, TREND=DIR"
	@echo "make bench           qrnic against Soft-RoCE, side by side"
	@echo "make experiments     figures and pictures of the experiments; OUT=DIR, ONLY=\"NAME ...\""
	@echo
	@echo "make qemu            build QEMU with the device (QEMU_VERSION=10.0 or later, or newest)"
	@echo "make modules         build the kernel modules for the guest"
	@echo "make provider        build the rdma-core provider for the guest"
	@echo "make guest           make the guest's images"
	@echo "make deps            install the host packages that are needed"
	@echo "make install         DESTDIR=... PREFIX=/usr/local/lib/qrnic: QEMU and its firmware"
	@echo "make packages        packages for Debian 13: an archive for apt"
	@echo "make install-guest   DESTDIR=...: modules and provider, into a guest's root"
	@echo "make image           an OCI image for containers without privileges"
	@echo
	@echo "make clean           remove the builds; make distclean: the whole cache, too"

deps:
	@tools/deps

qemu:
	@tools/build-qemu

modules:
	@tools/deps guest
	@tools/guest-build-modules

provider:
	@tools/deps guest
	@tools/guest-build-provider

guest:
	@tools/deps guest
	@tools/guest-build-modules
	@tools/guest-build-provider
	@tools/guest-image

demo:
	@tools/demo

shell:
	@tools/guest-shell

watch:
	@tools/watch $(OP)

manual:
	@tools/manual

packages:
	@tools/packages

site:
	@tools/site $(if $(OUT),--out "$(OUT)") $(if $(TREND),--trend "$(TREND)")

check:
	@tools/check $(SUITES)

check-contract check-static check-unit check-qtest check-fuzz check-scenarios check-sweeps check-process check-labs check-versions check-guest check-newest check-image \
check-packages check-experiments check-site:
	@tools/check $(@:check-%=%)

check-full:
	@QRNIC_FULL=1 tools/check $(SUITES)

check-debug:
	@tools/guest-debug-kernel

bench:
	@tools/bench

experiments:
	@tools/experiments $(if $(OUT),--out "$(OUT)") $(ONLY)

install: qemu
	@tools/install host

install-guest: modules provider
	@tools/install guest

image:
	@tools/image

clean:
	@tools/clean

distclean:
	@tools/clean --all
