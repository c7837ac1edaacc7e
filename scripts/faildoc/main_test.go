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
	read := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "failover.md"))
		require.NoError(t, err)
		return string(text)
	}
	put("failover.json", `[{"fault": "drained", "cable": "vxlan", "gateways": 2, "runs": 20, "gap_p50_ms": 11, "gap_p99_ms": 12, "gap_max_ms": 13, "connections_survived": 0.9951, "commit": "abc", "connections": 2000, "packets_lost": 30, "other_flows": 19, "other_packets_lost": 1, "control_gaps_ms": [9,9,9,9,9,9,9,9,9,9,3,3,3,3,3,3,3,3,3,3], "packets_dropped_by_machine": 50},
		{"fault": "killed-node", "cable": "vxlan", "gateways": 3, "api_servers_down": true, "runs": 1, "gap_p50_ms": 1, "gap_p99_ms": 2, "gap_max_ms": 3, "connections_survived": 1, "flows_moved_needlessly": 4}]`)
	put("failover.md", "before\n"+begin+"old\n"+end+"after\n")
	require.NoError(t, write(dir))
	require.Contains(t, read(dir), "before\n"+begin+"| fault |")
	require.Contains(t, read(dir), "| `drained` | vxlan | 2 | up | 20 | 11 | 12 | 13 | 3 | 9 | 99.51 % | 0 | 2 | 1 (19 flows) | 2 | abc |\n| `killed-node` | vxlan | 3 | down | 1 | 1 | 2 | 3 |  |  | 100 % | 4 |  |  |  |  |\n"+end+"after\n")
	put("failover.md", "no table")
	require.Error(t, write(dir))

	for _, name := range []string{"failover.json", "failover.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", name))
		require.NoError(t, err)
		put(name, string(text))
	}
	require.NoError(t, write(dir))
	require.Equal(t, read("../../docs"), read(dir))
}
