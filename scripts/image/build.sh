#!/bin/sh
# build.sh SUBCTL WIREGUARD-GO NAME:TAG OUT.tar: write the image of subctl as an OCI archive, without Docker, with the lab's image
# writer. Docker and its like build the same content from the Dockerfile.
# subctl is one layer and what it runs is another beneath: what did not change is not loaded into a node again.
set -eu
[ $# = 4 ] || { echo "usage: build.sh SUBCTL WIREGUARD-GO NAME:TAG OUT.tar" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
lab=$here/../lab/bin/lab
[ -x "$lab" ] || { echo "build.sh: $lab is missing: run make lab" >&2; exit 1; }
[ -x "$1" ] || { echo "build.sh: $1 is not a program: run make build" >&2; exit 1; }
base=$(mktemp -d)
trap 'rm -rf "$base"' EXIT
"$here/rootfs.sh" "$base" "$2"
mkdir -p "$(dirname "$4")"
"$lab" image --rootfs "$base" --rootfs "$1=/usr/local/bin/subctl" --tag "$3" --entrypoint /usr/local/bin/subctl "$4"
