//go:build linux

package nstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// UAPIDir is the directory of wireguard-go's sockets: see Private.
const UAPIDir = "/var/run/wireguard"

// WireGuard ensures that the code under test can create WireGuard devices: in the kernel
// if it has WireGuard, otherwise with wireguard-go, which is added to PATH if necessary.
func WireGuard(t testing.TB) {
	t.Helper()
	if _, err := New(t, "probe").Try(probes["wireguard"]); err == nil {
		return
	}
	if err := wireGuardGo(); err != nil {
		t.Fatalf("%s: the kernel has no WireGuard, and %v", t.Name(), err)
	}
}

// wireGuardGo adds wireguard-go to PATH, in the version of go.mod.
var wireGuardGo = sync.OnceValue(func() error {
	if _, err := exec.LookPath("wireguard-go"); err == nil {
		return nil
	}
	tool, err := exec.Command("go", "tool", "-n", "wireguard").Output()
	if err != nil {
		return fmt.Errorf("wireguard-go is not in PATH, and go tool -n wireguard: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "subctl-test")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	program := filepath.Join(dir, "wireguard-go")
	_ = os.Remove(program) // from another build
	if err := os.Symlink(strings.TrimSpace(string(tool)), program); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Setenv("PATH", os.Getenv("PATH")+string(filepath.ListSeparator)+dir)
})
