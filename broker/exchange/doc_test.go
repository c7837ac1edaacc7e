package exchange

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocNamesAllFiles requires that the package comment, which says in which order to read the
// files, names each file once, and no others.
func TestDocNamesAllFiles(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var want []string
	for _, f := range files {
		if f != "doc.go" && !strings.HasSuffix(f, "_test.go") {
			want = append(want, f)
		}
	}
	require.ElementsMatch(t, want, regexp.MustCompile(`[a-z]+\.go`).FindAllString(string(text), -1))
}
