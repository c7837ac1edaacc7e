#!/bin/sh
# rootfs.sh OUT [PROGRAM...]: collect into the new directory OUT what the image of subctl holds beneath subctl itself: iptables (both
# variants), ipset, nft and strongSwan as Debian built them, the shared libraries and plugins they load, a minimal /etc, and, in /usr/local/bin,
# the static PROGRAMs. subctl is not among them: it is a layer on top, so that this one stays the same from build to build.
# Runs on Debian and its like, with the packages of scripts/prereqs.sh, without root. The Dockerfile, scripts/image/build.sh
# and scripts/testkernel use it.
set -eu
PATH=/usr/sbin:/sbin:$PATH

die() { echo "rootfs.sh: $*" >&2; exit 1; }

[ $# -ge 1 ] || die "usage: rootfs.sh OUT [PROGRAM...]"
out=$1
shift
[ ! -e "$out" ] || [ -z "$(ls -A "$out")" ] || die "$out is not empty: give a new directory"

# What of strongSwan is in the image: for IKEv2 with pair keys, negotiated over vici, and nothing else. Cryptography is OpenSSL's.
ike=/usr/lib/ipsec/plugins
ike_plugins="kernel-libipsec kernel-netlink kdf nonce openssl pem random socket-default vici"

umask 022
mkdir -p "$out/usr/bin" "$out/usr/sbin" "$out/usr/lib" "$out/usr/lib64" "$out/usr/local/bin" "$out/etc" "$out/run" "$out/tmp" "$out/var" "$out/root"
chmod 1777 "$out/tmp"
chmod 700 "$out/root"
# Paths of libraries come with and without /usr: here both are one, as on Debian.
for dir in bin sbin lib lib64; do ln -s usr/$dir "$out/$dir"; done
ln -s /run "$out/var/run"

# put FILE: the file itself, whatever links lead to it, under the name that was asked for.
put() { mkdir -p "$out$(dirname "$1")" && cp -L "$1" "$out$1"; }

for program in xtables-nft-multi:iptables xtables-legacy-multi:iptables ipset:ipset nft:nftables charon-systemd:charon-systemd; do
	file=$(command -v "${program%:*}") || die "${program%:*} is missing: apt-get install ${program#*:}"
	put "$file"
done
for plugin in $ike_plugins; do
	file=$ike/libstrongswan-$plugin.so
	[ -e "$file" ] || die "$file is missing: run scripts/prereqs.sh"
	put "$file"
done
xtables=$(dpkg-query -L iptables | grep '/xtables$') || die "package iptables has no folder xtables"
for plugin in "$xtables"/libxt_*.so "$xtables"/libipt_*.so "$xtables"/libip6t_*.so; do
	if [ -h "$plugin" ]; then # another name for a plugin; a copy would be twice the size
		mkdir -p "$out$xtables" && cp -P "$plugin" "$out$xtables/"
	else
		put "$plugin"
	fi
done

# Everything they are linked with, by ldd's own transitive answer. Libraries of /usr/local would be this machine's, not Debian's.
find "$out/usr/sbin" "$out$xtables" "$out$ike" -type f | while read -r file; do LD_LIBRARY_PATH=/usr/lib/ipsec ldd "$file" 2>/dev/null || true; done |
	awk '/=> \//{print $3} /^[ \t]*\//{print $1}' | sort -u | while read -r library; do put "$library"; done

# glibc opens this one by itself, to end threads: charon dies of it at SIGTERM if it is not there.
put "$(ldd "$(command -v charon-systemd)" | awk '/libc\.so\.6/{print $3}' | sed 's|/libc\.so\.6$|/libgcc_s.so.1|')"

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
# The names by which Submariner's tools ask for the versions of the agents; subctl itself is in the layer on top.
for component in submariner-gateway submariner-route-agent; do ln -s subctl "$out/usr/local/bin/$component"; done
for program; do
	[ -x "$program" ] || die "$program is not a program: build it first"
	cp -L "$program" "$out/usr/local/bin/"
	chmod 755 "$out/usr/local/bin/$(basename "$program")"
done
