//go:build linux

package iptables

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The holder of a lock is known if it is visible.
func TestLockHolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "xtables.lock")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	unknown := `another program ("fuser -v ` + file + `" on the node names it)`
	require.Equal(t, unknown, lockHolder(dir, file))
	var s unix.Stat_t
	require.NoError(t, unix.Stat(file, &s))
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
	locks := func(lines string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "locks"), []byte(lines), 0o600))
	}
	locks("1: FLOCK  ADVISORY  WRITE 7 00:1a:99999999 0 EOF\n2: FLOCK  ADVISORY  WRITE 0 " + id + " 0 EOF\n")
	require.Equal(t, unknown, lockHolder(dir, file), "a process of another namespace")
	locks("1: -> FLOCK  ADVISORY  WRITE 7 " + id + " 0 EOF\n1: FLOCK  ADVISORY  WRITE 12 " + id + " 0 EOF\n")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "12"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "12", "comm"), []byte("kube-proxy\n"), 0o600))
	require.Equal(t, "kube-proxy (pid 12)", lockHolder(dir, file))
	require.Contains(t, lockHolder(dir, filepath.Join(dir, "none")), "another program")
}
