package controller

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/sdewan.md has every reason of the condition Applied.
func TestReasonsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("report.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/sdewan.md")
	require.NoError(t, err)
	find := func(pattern string, in []byte) (out []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(in, -1) {
			out = append(out, string(m[1]))
		}
		return out
	}
	reasons := find(`(?m)^\t[A-Z]\w+ += "([A-Z]\w+)"$`, source)
	require.Len(t, reasons, 17)
	require.Equal(t, reasons, find("(?m)^\\| `([A-Z]\\w+)` \\|", page))
}
