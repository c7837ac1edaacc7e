package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table is replaced, and nothing else. What is in the repository is what was measured.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	read := func(dir, name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	put(
		"failover.json",
		`[{"fault": "drained", "cable": "vxlan", "gateways": 2, "runs": 20, "gap_p50_ms": 11, "gap_p99_ms": 12, "gap_max_ms": 13, "connections_survived": 0.9951, "commit": "abc", "connections": 2000, "packets_lost": 30, "other_flows": 19, "other_packets_lost": 1, "control_gaps_ms": [9,9,9,9,9,9,9,9,9,9,3,3,3,3,3,3,3,3,3,3], "packets_dropped_by_machine": 50},
		{"fault": "killed-node", "cable": "vxlan", "gateways": 3, "api_servers_down": true, "runs": 1, "gap_p50_ms": 1, "gap_p99_ms": 2, "gap_max_ms": 3, "connections_survived": 1, "flows_moved_needlessly": 4}]`,
	)
	put("services.json", `[{"fault": "exported", "commit": "abc", "runs": [{"wrong_ms": 300.4}, {"wrong_ms": 200}]},
		{"fault": "pair-cut", "commit": "abc", "runs": [
			{"spread": {"sent": 800, "lost": 3, "gap_ms": 40, "lost_on_return": 1}, "own": {"sent": 800, "lost": 0}, "wrong_ms": 900, "connections": 100, "connections_broken": 33},
			{"spread": {"sent": 802, "lost": 4, "gap_ms": 50}, "own": {"sent": 800, "lost": 1}, "wrong_ms": 800, "connections": 100, "connections_broken": 34}]}]`)
	put("services.md", "before\n"+beginServices+"old\n"+end+"after\n")
	put("failover.md", "before\n"+begin+"old\n"+end+"after\n")
	require.NoError(t, write(dir))
	require.Contains(t, read(dir, "failover.md"), "before\n"+begin+"| fault |")
	require.Contains(
		t,
		read(dir, "failover.md"),
		"| `drained` | vxlan | 2 | up | 20 | 11 | 12 | 13 | 3 | 9 | 99.51 % | 0 | 2 | 1 (19 flows) | 2 | abc |\n| `killed-node` | vxlan | 3 | down | 1 | 1 | 2 | 3 |  |  | 100 % | 4 |  |  |  |  |\n"+
			end+"after\n",
	)
	services := read(dir, "services.md")
	require.Contains(t, services, "before\n"+beginServices+"| fault |")
	require.Contains(t, services, "| `exported` | 2 | 200 | 300 | 300 |  |  |  |  |  |  | abc |\n"+
		"| `pair-cut` | 2 | 800 | 900 | 900 | 3.5 of 801 | 40 | 50 | 0.5 | 0.5 | 33.5 of 100 | abc |\n"+end+"after\n")
	for _, name := range []string{"failover.md", "services.md"} {
		kept := read(dir, name)
		put(name, "no table")
		require.Error(t, write(dir), name)
		put(name, kept)
	}

	for _, name := range []string{"failover.json", "failover.md", "services.json", "services.md"} {
		put(name, read("../../docs/measurements", name))
	}
	require.NoError(t, write(dir))
	for _, name := range []string{"failover.md", "services.md"} {
		require.Equal(t, read("../../docs/measurements", name), read(dir, name))
	}
}
