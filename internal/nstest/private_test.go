//go:build linux

package nstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two namespaces do not see each other's private folder, nor does the test itself; all
// else they share.
func TestPrivate(t *testing.T) {
	dir := t.TempDir()
	a := New(t, "a")
	b := New(t, "b")
	for _, n := range []*NS{a, b} {
		n.Private(dir)
		n.Run("echo " + n.Name + " > " + dir + "/file; echo x >> " + dir + "-shared")
	}
	require.Equal(t, "a\n", a.Run("cat "+dir+"/file"))
	require.Equal(t, "b\n", b.Run("cat "+dir+"/file"))
	require.NoFileExists(t, filepath.Join(dir, "file"))
	shared, err := os.ReadFile(dir + "-shared")
	require.NoError(t, err)
	require.Equal(t, "x\nx\n", string(shared))
}
