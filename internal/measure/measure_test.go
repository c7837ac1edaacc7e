package measure

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	t.Setenv(File, file)
	Record(t, AtMost("lost", Values{1.23456}, 0, "packets"), AtLeast("throughput", Values{95}, 95, "%"))
	t.Setenv(Where, "in QEMU")
	Record(t, Info("throughput", Values{5, 9, 4, 6}, "Gbit/s"))
	t.Setenv(Where, "")
	Record(t, AtMost("lost", Values{0}, 0, "packets"))
	rows, err := Read(file)
	require.NoError(t, err)
	require.Equal(t, []Row{
		{Name: "lost", Value: 0, Unit: "packets", Target: "at most 0", Holds: true},
		{Name: "throughput", Value: 95, Unit: "%", Target: "at least 95", Holds: true},
		{Name: "throughput, in QEMU", Value: 5.5, Low: 4.75, High: 6.75, Unit: "Gbit/s", Holds: true},
	}, rows)
}

func TestHolds(t *testing.T) {
	require.Equal(t, Row{Name: "lost", Value: 1.235, Unit: "packets", Target: "at most 0"},
		AtMost("lost", Values{1.23456}, 0, "packets"))
	require.False(t, AtLeast("throughput", Values{94.9}, 95, "%").Holds)
	require.True(t, AtLeast("throughput", Values{1, 96, 97}, 95, "%").Holds, "the median counts")
	require.False(t, AtMost("time", Values{1, 51, 52}, 50, "ms").Holds, "the median counts")
}

func TestTimes(t *testing.T) {
	for set, want := range map[string]int{"": 11, "5": 5, "20": 11, "0": 11, "few": 11} {
		t.Setenv(Repeat, set)
		require.Equal(t, want, Times(11), set)
	}
}

// A machine that becomes slower with each measurement, and is disturbed once, changes
// neither the median of the ratios nor what a turn consists of.
func TestCompare(t *testing.T) {
	var order string
	speed := 1000.0
	side := func(name string, factor float64) func() float64 {
		return func() float64 {
			order += name
			speed--
			if len(order) == 5 {
				return 1
			}
			return speed * factor
		}
	}
	c := Compare(8, side("o", 1.1), side("h", 1))
	require.Equal(t, "ohhoohhoohhoohho", order)
	require.Len(t, c.Ours, 8)
	require.Len(t, c.Other, 8)
	require.InDelta(t, 110, c.Percent.Median(), 0.15)
	require.InDelta(t, 0.1, c.Percent[2], 0.01, "the ratio of the turn that was disturbed")
}

func TestValues(t *testing.T) {
	v := Values{4, 1, 2, 3}
	require.Equal(t, 2.5, v.Median())
	require.Equal(t, Values{4, 1, 2, 3}, v, "the order stays")
	require.Equal(t, Values{2, 0.5, 1, 1.5}, v.Per(2))
	require.Equal(t, 7.0, Values{7}.Median())
}
