#!/bin/sh
# Installs what the lab, the image and the root tests need of Debian, if it is
# missing: each line is a command and the package it is in.
set -eu
PATH=$PATH:/usr/sbin:/sbin
missing=
while read -r command package; do
	command -v "$command" >/dev/null || missing="$missing $package"
done <<LIST
ip iproute2
bridge iproute2
iptables iptables
ipset ipset
nft nftables
nsenter util-linux
ping iputils-ping
gcc gcc
git git
LIST
command -v go >/dev/null || [ -x /usr/local/go/bin/go ] || { echo "Go is missing: install 1.26 or newer from https://go.dev/dl" >&2; exit 1; }
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "these packages are missing, and installing them needs root:$missing" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of words
apt-get install -y -qq --no-install-recommends $missing libc6-dev >/dev/null
