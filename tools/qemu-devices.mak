# The devices of the QEMU that tools/build-qemu makes, besides those that its machine cannot
# do without: what guests boot from, talk through and are tested beside. A list of our own,
# because all of QEMU's devices would double the time of the build.
# SPDX-License-Identifier: GPL-2.0-or-later
CONFIG_Q35=y
CONFIG_QRNIC=y
# Ports and switches above an adapter, and the IOMMU before it
CONFIG_PCIE_PORT=y
CONFIG_XIO3130=y
CONFIG_VTD=y
# Disk, network, console, entropy and memory of a guest
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_NET=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VIRTIO_RNG=y
CONFIG_VIRTIO_BALLOON=y
CONFIG_E1000E_PCI_EXPRESS=y
CONFIG_VGA_PCI=y
# A guest's program ends QEMU with a status of its own.
CONFIG_ISA_DEBUG=y
