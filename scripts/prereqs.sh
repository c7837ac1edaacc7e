#!/bin/sh
# Installs what the lab, the image and the root tests need of Debian, if it is
# missing: each line is a command, or a file, and the package it is in.
set -eu
PATH=$PATH:/usr/sbin:/sbin
missing=
while read -r thing package; do
	command -v "$thing" >/dev/null || [ -e "$thing" ] || missing="$missing $package"
done <<LIST
ip iproute2
bridge iproute2
iptables iptables
ipset ipset
ethtool ethtool
nft nftables
nsenter util-linux
ping iputils-ping
sysctl procps
tcpdump tcpdump
socat socat
charon-systemd charon-systemd
swanctl strongswan-swanctl
/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so libcharon-extra-plugins
/usr/lib/ipsec/plugins/libstrongswan-openssl.so libstrongswan-standard-plugins
qemu-system-x86_64 qemu-system-x86
depmod kmod
gcc gcc
git git
LIST
command -v go >/dev/null || [ -x /usr/local/go/bin/go ] || { echo "Go is missing: install 1.26 or newer from https://go.dev/dl" >&2; exit 1; }
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "these packages are missing, and installing them needs root:$missing" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
case $missing in *charon-systemd*)
	# The tests run strongSwan by themselves: the machine's own must not start with it, now or at the next boot.
	if command -v systemctl >/dev/null; then systemctl --quiet mask strongswan.service; fi ;;
esac
# shellcheck disable=SC2086 # a list of words
apt-get install -y -qq --no-install-recommends $missing libc6-dev >/dev/null
