package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

func TestWrite(t *testing.T) {
	folder := t.TempDir()
	rows := filepath.Join(folder, "rows.json")
	require.ErrorContains(t, write(rows, folder, false), "no rows")
	require.NoError(
		t,
		measure.Keep(rows, measure.AtMost("a", measure.Values{1, 0, 3}, 2, "s"),
			measure.Info("b", measure.Values{3}, "Gbit/s")),
	)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "benchmarks.json"), []byte("[]"), 0o644), "from an older run")
	require.NoError(t, write(rows, folder, false))
	page, err := os.ReadFile(filepath.Join(folder, "benchmarks.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| a | 1 | 0.5 – 2 | s | at most 2 | yes |\n| b | 3 |  | Gbit/s |  |  |\n")

	require.NoError(t, measure.Keep(rows, measure.AtLeast("c", measure.Values{94}, 95, "%")))
	require.EqualError(t, write(rows, folder, false), "c: 94 %: wanted at least 95", "a target that was missed")
	kept, err := measure.Read(filepath.Join(folder, "benchmarks.json"))
	require.NoError(t, err)
	require.Len(t, kept, 3, "it is written nevertheless")
	page, err = os.ReadFile(filepath.Join(folder, "benchmarks.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| c | 94 |  | % | at least 95 | **no** |")

	few := filepath.Join(folder, "few.json")
	require.NoError(
		t,
		measure.Keep(few, measure.AtLeast("c", measure.Values{96}, 95, "%"),
			measure.Info("aa", measure.Values{7}, "s")),
	)
	require.NoError(t, write(few, folder, true), "all targets are reached")
	kept, err = measure.Read(filepath.Join(folder, "benchmarks.json"))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "aa", "b", "c"}, []string{kept[0].Name, kept[1].Name, kept[2].Name, kept[3].Name})
	require.Equal(t, []float64{1, 7, 3, 96}, []float64{kept[0].Value, kept[1].Value, kept[2].Value, kept[3].Value})
	page, err = os.ReadFile(filepath.Join(folder, "benchmarks.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| a | 1 | 0.5 – 2 | s | at most 2 | yes |\n| aa | 7 |  | s |  |  |\n| b | 3 |")
	require.NoError(t, write(few, folder, false))
	kept, err = measure.Read(filepath.Join(folder, "benchmarks.json"))
	require.NoError(t, err)
	require.Len(t, kept, 2, "all other rows are gone")
}
