//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// evidence prints, if the test has failed when it ends, what clusters say of themselves and how the
// logs of nodes end.
func evidence(t *testing.T, nodes, clusters []string) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		show := func(args ...string) {
			out, err := sh(args...)
			t.Logf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		show("lab", "status")
		for _, c := range clusters {
			show("kubectl", "--context", c, "get", "nodes,pods", "-A", "-o", "wide")
			show("subctl", "show", "gateways", "--context", c, "-o", "wide")
			show("subctl", "show", "connections", "--context", c, "-o", "wide")
		}
		const last = 4000 // bytes
		for _, node := range nodes {
			for _, pattern := range []string{"init.log", "var/log/*.log", "var/log/pods/submariner*/*/*.log"} {
				// the pattern is well-formed
				logs, _ := filepath.Glob(filepath.Join("/var/lib/subctl-lab", node, pattern))
				for _, log := range logs {
					text, err := os.ReadFile(log)
					t.Logf("%s: %v\n%s", log, err, text[max(0, len(text)-last):])
				}
			}
		}
	})
}
