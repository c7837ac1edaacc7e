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
	require.ErrorContains(t, write(rows, folder), "no rows")
	require.NoError(t, measure.Keep(rows, measure.AtMost("a", measure.Values{1, 0, 3}, 2, "s"), measure.Info("b", measure.Values{3}, "Gbit/s")))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "benchmarks.json"), []byte("[]"), 0o644), "from an older run")
	require.NoError(t, write(rows, folder))
	page, err := os.ReadFile(filepath.Join(folder, "benchmarks.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| a | 1 | 0.5 – 2 | s | at most 2 | yes |\n| b | 3 |  | Gbit/s |  |  |\n")

	require.NoError(t, measure.Keep(rows, measure.AtLeast("c", measure.Values{94}, 95, "%")))
	require.EqualError(t, write(rows, folder), "c: 94 %: wanted at least 95", "a target that was missed")
	kept, err := measure.Read(filepath.Join(folder, "benchmarks.json"))
	require.NoError(t, err)
	require.Len(t, kept, 3, "it is written nevertheless")
	page, err = os.ReadFile(filepath.Join(folder, "benchmarks.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| c | 94 |  | % | at least 95 | **no** |")
}
