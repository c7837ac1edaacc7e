package measure

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	t.Setenv(File, file)
	Record(t, AtMost("lost", 1.23456, 0, "packets"), AtLeast("throughput", 95, 95, "%"))
	t.Setenv(Where, "in QEMU")
	Record(t, Info("throughput", 5, "Gbit/s"))
	t.Setenv(Where, "")
	Record(t, AtMost("lost", 0, 0, "packets"))
	rows, err := Read(file)
	require.NoError(t, err)
	require.Equal(t, []Row{
		{Name: "lost", Value: 0, Unit: "packets", Target: "at most 0", Holds: true},
		{Name: "throughput", Value: 95, Unit: "%", Target: "at least 95", Holds: true},
		{Name: "throughput, in QEMU", Value: 5, Unit: "Gbit/s", Holds: true},
	}, rows)
}

func TestHolds(t *testing.T) {
	require.Equal(t, Row{Name: "lost", Value: 1.235, Unit: "packets", Target: "at most 0"}, AtMost("lost", 1.23456, 0, "packets"))
	require.False(t, AtLeast("throughput", 94.9, 95, "%").Holds)
}

func TestTimes(t *testing.T) {
	for set, want := range map[string]int{"": 11, "5": 5, "20": 11, "0": 11, "few": 11} {
		t.Setenv(Repeat, set)
		require.Equal(t, want, Times(11), set)
	}
}
