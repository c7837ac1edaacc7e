package measure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailoverAdd(t *testing.T) {
	var r Failover
	for i := range 100 {
		r.Add(FailoverRun{Gap: float64(100-i) + 0.4, Connections: 100})
	}
	require.Equal(t, 100, r.Runs)
	require.Equal(t, []float64{50, 99, 100}, []float64{r.P50, r.P99, r.Max})
	require.Equal(t, 1.0, r.Survived)
	r.Add(FailoverRun{Gap: 300, Connections: 100, Lost: 1, Moved: 2, Packets: 3, Others: 2, OthersPackets: 1})
	require.Equal(t, []float64{51, 100, 300}, []float64{r.P50, r.P99, r.Max})
	require.Equal(t, 0.9999, r.Survived, "a connection is lost")
	for range 10_000 {
		r.Add(FailoverRun{Gap: 1, Connections: 100})
	}
	require.Equal(t, 0.9999, r.Survived, "a loss is never rounded away")
	require.Equal(t, []int{2, 3, 2, 1}, []int{r.Moved, r.Packets, r.Others, r.OthersPackets})

	few := Failover{}
	few.Add(FailoverRun{Gap: 7, Connections: 3, Lost: 3})
	require.Equal(t, []float64{7, 7, 7, 0}, []float64{few.P50, few.P99, few.Max, few.Survived})
}

// What has been measured is kept run by run, and resumed only if the program is the same.
func TestFailoverKeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "failover.json")
	measured := func(r Failover, gap float64) Failover {
		r, err := r.Resume(file)
		require.NoError(t, err)
		r.Add(FailoverRun{Gap: gap, Connections: 10})
		require.NoError(t, r.Keep(file))
		return r
	}
	killed := Failover{Fault: "killed-node", Cable: "vxlan", Gateways: 2, Commit: "a"}
	measured(Failover{Fault: "killed-node", Cable: "vxlan", Gateways: 3, Commit: "a"}, 1)
	without := killed
	without.NoAPI = true
	measured(without, 2)
	measured(killed, 3)
	require.Equal(t, []float64{3, 5}, measured(killed, 5).Gaps)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, `[
{"fault":"killed-node","cable":"vxlan","gateways":2,"runs":2,"gap_p50_ms":3,"gap_p99_ms":5,"gap_max_ms":5,"connections_survived":1,"flows_moved_needlessly":0,"commit":"a","flows":5,"gaps_ms":[3,5],"control_gaps_ms":[0,0],"connections":20},
{"fault":"killed-node","cable":"vxlan","gateways":2,"api_servers_down":true,"runs":1,"gap_p50_ms":2,"gap_p99_ms":2,"gap_max_ms":2,"connections_survived":1,"flows_moved_needlessly":0,"commit":"a","flows":5,"gaps_ms":[2],"control_gaps_ms":[0],"connections":10},
{"fault":"killed-node","cable":"vxlan","gateways":3,"runs":1,"gap_p50_ms":1,"gap_p99_ms":1,"gap_max_ms":1,"connections_survived":1,"flows_moved_needlessly":0,"commit":"a","flows":5,"gaps_ms":[1],"control_gaps_ms":[0],"connections":10}
]
`, string(text))
	killed.Commit = "b"
	require.Equal(t, []float64{9}, measured(killed, 9).Gaps, "another program")
	rows, err := Failovers(file)
	require.NoError(t, err)
	require.Len(t, rows, 3)
	killed.Commit = ""
	measured(killed, 1)
	require.Equal(t, []float64{2}, measured(killed, 2).Gaps, "an unknown program")
}
