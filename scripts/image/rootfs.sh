#!/bin/sh
# rootfs.sh OUT [SUBCTL]: collect into the new directory OUT what the image of subctl holds: iptables (both variants) and ipset as
# Debian built them, the shared libraries and plugins they load, a minimal /etc, and, if its path is given, the static
# binary SUBCTL. Without it, the directory makes a layer that does not change from build to build, and subctl another on top.
# Runs on Debian and its like, with the packages iptables and ipset, without root. The Dockerfile and the lab both use it.
set -eu

die() { echo "rootfs.sh: $*" >&2; exit 1; }

[ $# -ge 1 ] && [ $# -le 2 ] || die "usage: rootfs.sh OUT [SUBCTL]"
out=$1 subctl=${2:-}
[ ! -e "$out" ] || [ -z "$(ls -A "$out")" ] || die "$out is not empty: give a new directory"
[ -z "$subctl" ] || [ -x "$subctl" ] || die "$subctl is not a program: build it first"
plugins=$(dpkg-query -L iptables 2>/dev/null | grep '/xtables$') || die "package iptables is not installed: apt-get install iptables ipset"
PATH=/usr/sbin:/sbin:$PATH
for tool in xtables-nft-multi xtables-legacy-multi ipset; do
	command -v $tool >/dev/null || die "$tool is missing: apt-get install iptables ipset"
done

umask 022
mkdir -p "$out/usr/bin" "$out/usr/sbin" "$out/usr/lib" "$out/usr/lib64" "$out/usr/local/bin" "$out/etc" "$out/run" "$out/tmp" "$out/var" "$out/root"
chmod 1777 "$out/tmp"
chmod 700 "$out/root"
# Paths of libraries come with and without /usr: here both are one, as on Debian.
for dir in bin sbin lib lib64; do ln -s usr/$dir "$out/$dir"; done
ln -s /run "$out/var/run"

# put FILE: the file itself, whatever links lead to it, under the name that was asked for.
put() { mkdir -p "$out$(dirname "$1")" && cp -L "$1" "$out$1"; }

for tool in xtables-nft-multi xtables-legacy-multi ipset; do put "$(command -v $tool)"; done
for plugin in "$plugins"/libxt_*.so "$plugins"/libipt_*.so "$plugins"/libip6t_*.so; do
	if [ -h "$plugin" ]; then # another name for a plugin; a copy would be twice the size
		mkdir -p "$out$plugins" && cp -P "$plugin" "$out$plugins/"
	else
		put "$plugin"
	fi
done

# Everything they are linked with, by ldd's own transitive answer. Libraries of /usr/local would be this machine's, not Debian's.
find "$out/usr/sbin" "$out$plugins" -type f | while read -r file; do ldd "$file" 2>/dev/null || true; done |
	awk '/=> \//{print $3} /^[ \t]*\//{print $1}' | sort -u | while read -r library; do put "$library"; done

# A multi-call binary goes by the name it is called. The plain names are the nft variant, as in Debian; subctl asks for the other
# one by name on nodes whose kube-proxy uses it.
for family in iptables ip6tables; do
	for verb in "" -save -restore; do
		ln -s xtables-nft-multi "$out/usr/sbin/$family$verb"
		ln -s xtables-nft-multi "$out/usr/sbin/$family-nft$verb"
		ln -s xtables-legacy-multi "$out/usr/sbin/$family-legacy$verb"
	done
done

printf 'root:x:0:0:root:/root:/nologin\nnobody:x:65534:65534:nobody:/:/nologin\n' >"$out/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$out/etc/group"
if [ -n "$subctl" ]; then
	cp -L "$subctl" "$out/usr/local/bin/subctl"
	chmod 755 "$out/usr/local/bin/subctl"
fi
