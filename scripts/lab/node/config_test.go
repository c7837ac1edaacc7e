package node

import (
	"strings"
	"testing"

	"subctl/lab/plan"
)

// The kubelet ignores keys that it does not know.
func TestKubeletKnowsNameServer(t *testing.T) {
	const want = "\nclusterDomain: cluster.local\nclusterDNS: [\"10.102.0.10\"]\n"
	got := kubelet(plan.Node{Cluster: plan.Cluster{Number: 2}, Number: 1})
	if !strings.Contains(got, want) {
		t.Errorf("want %s in\n%s", want, got)
	}
}
