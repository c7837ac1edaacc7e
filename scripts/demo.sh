#!/bin/bash
# demo.sh: three real clusters, joined by the commands of the README, carrying
# traffic. Run by "make demo", which builds the prerequisites; taken down by
# "make demo-down". Can be repeated while the demo is up.
set -euo pipefail
cd "$(dirname "$0")/.."
lab=scripts/lab/bin/lab
kubectl=scripts/lab/bin/kubectl
export KUBECONFIG=$PWD/kubeconfigs/lab.yaml
start=$SECONDS

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { # print a command as typed, and run it
	printf '\n$ %s\n' "$*"
	"$@"
}

[ "$(id -u)" = 0 ] || { echo "make demo needs root: the lab's nodes are made of network namespaces, mounts and cgroups" >&2; exit 1; }

say "Three real clusters (each: a control plane and two nodes)"
$lab up --clusters 3 --nodes 2
$lab load-image dist/subctl.tar

say "A broker, through which clusters exchange objects"
show bin/subctl deploy-broker --context cluster1 --broker-info kubeconfigs/broker-info.subm

say "Three members"
for i in 1 2 3; do # the networks of the lab's clusters: scripts/lab/plan
	show bin/subctl join kubeconfigs/broker-info.subm --context cluster$i --image "$IMAGE" \
		--clustercidr 10.11$i.0.0/16 --servicecidr 10.10$i.0.0/16 --gateway-nodes cluster$i-node1
done
for try in $(seq 30); do # earlier members receive the last one a moment later
	bin/subctl show connections >/dev/null 2>&1 && break
	sleep 1
done
show bin/subctl show connections

say "A web server in cluster2 and cluster3, a client on a node of cluster1 that is not a gateway"
for c in cluster2 cluster3; do
	$kubectl --context $c apply -f scripts/demo/web.yaml >/dev/null
done
gateway=$($kubectl --context cluster1 -n submariner-operator get endpoints.submariner.io \
	-o jsonpath='{.items[?(@.spec.cluster_id=="cluster1")].spec.hostname}')
node=$($kubectl --context cluster1 get nodes -o name | sed s,node/,, | grep -vx "$gateway" | head -n 1)
sed "s/NODE/$node/" scripts/demo/client.yaml | $kubectl --context cluster1 apply -f - >/dev/null
for c in cluster2 cluster3; do
	$kubectl --context $c rollout status deployment/web --timeout=120s >/dev/null
done
$kubectl --context cluster1 wait --for=condition=Ready pod/client --timeout=120s >/dev/null
for c in cluster2 cluster3; do
	show bin/subctl export service web -n default --context $c
done
url=http://web.default.svc.clusterset.local/
printf '\nthe pod "client" on %s fetches %s\n' "$node" "$url"
for try in $(seq 60); do # CoreDNS reads its new configuration, and clusters receive what others export, a moment later
	answer=$($kubectl --context cluster1 exec client -- /labapp get $url -n 8 2>&1) &&
		[[ $answer == *" node=cluster2-node"* && $answer == *" node=cluster3-node"* ]] && break
	[ "$try" -lt 60 ] || { printf '%s\n' "$answer" "no pods of cluster2 and cluster3 have answered" >&2; exit 1; }
	sleep 1
done
echo "$answer"

say "It works ($((SECONDS - start)) s). Continue with"
cat <<END
  export KUBECONFIG=$PWD/kubeconfigs/lab.yaml      # contexts cluster1, cluster2, cluster3
  bin/subctl show all --context cluster1
  bin/subctl show plan $node --context cluster1
  $kubectl --context cluster1 exec client -- /labapp get $url
and remove it, leaving nothing behind, with
  make demo-down
END
