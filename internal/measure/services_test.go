package measure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What has been measured is kept run by run, and resumed only if the program is the same.
func TestServiceFailureKeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "services.json")
	measured := func(fault, commit string, wrong float64) ServiceFailure {
		row, err := ServiceFailure{Fault: fault, Commit: commit}.Resume(file)
		require.NoError(t, err)
		row.Runs = append(row.Runs, ServiceRun{Spread: ServiceRequests{Sent: 9, Lost: 1, Gap: wrong / 2}, Wrong: wrong})
		require.NoError(t, row.Keep(file))
		return row
	}
	measured("pod-deleted", "a", 700.4)
	measured("pair-cut", "a", 0)
	row := measured("pod-deleted", "a", 500)
	require.Equal(t, []float64{700, 500}, row.Wrongs())
	require.Equal(t, []float64{350, 250}, row.Gaps())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, `[
{"fault":"pod-deleted","commit":"a","runs":[{"spread":{"sent":9,"lost":1,"gap_ms":350.2},"own":{"sent":0,"lost":0,"gap_ms":0},"wrong_ms":700.4},{"spread":{"sent":9,"lost":1,"gap_ms":250},"own":{"sent":0,"lost":0,"gap_ms":0},"wrong_ms":500}]},
{"fault":"pair-cut","commit":"a","runs":[{"spread":{"sent":9,"lost":1,"gap_ms":0},"own":{"sent":0,"lost":0,"gap_ms":0},"wrong_ms":0}]}
]
`, string(text))
	require.Equal(t, []float64{9}, measured("pair-cut", "b", 9).Wrongs(), "another program")
	measured("pair-cut", "", 1)
	require.Equal(t, []float64{2}, measured("pair-cut", "", 2).Wrongs(), "an unknown program")
}
