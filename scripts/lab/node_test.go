package main

import (
	"os"
	"strings"
	"testing"

	"subctl/lab/plan"
)

// Killing an API server never takes its network away: the flag has no meaning there, and is refused
// instead of ignored.
func TestKeepNetworkIsForNodes(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("SUBCTL_REQUIRE_ROOT") == "1" {
			t.Fatal("root is needed to kill anything in a lab")
		}
		t.Skip("root is needed to kill anything in a lab")
	}
	l := &lab{dir: t.TempDir()}
	if err := l.record(plan.Cluster{Number: 0, ProxyMode: "iptables"}); err != nil { // a real lab has no cluster0
		t.Fatal(err)
	}
	cmd := newKill(l)
	cmd.SilenceUsage = true
	cmd.SilenceErrors = true
	cmd.SetArgs([]string{"--keep-network", "cluster0-api"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "--keep-network is for nodes only") {
		t.Errorf("--keep-network for an API server: %v", err)
	}
}
