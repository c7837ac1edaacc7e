// Package kubetest gives tests a real API server: etcd, kube-apiserver and the
// controllers, without nodes, as the lab's binary runs them. A fake does not show how
// RBAC, admission policies, and the controllers of tokens and garbage behave.
//
// A test binary shares one server and gives every test a namespace:
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }
//	func TestX(t *testing.T)    { s := kubetest.Shared(t); ns := s.Namespace(t, "x"); … }
//
// Without the lab's binary the tests are skipped, or fail if SUBCTL_REQUIRE_ROOT=1.
// The package is not for production code.
package kubetest

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// LabBin is the environment variable with the path of the lab's binary. The default
	// is scripts/lab/bin/lab.
	LabBin = "SUBCTL_LAB_BIN"
	// Require is the environment variable that, if set to 1, makes a test fail instead
	// of being skipped.
	Require = "SUBCTL_REQUIRE_ROOT"
)

// shared is the server that the tests of one binary share, started by the first
// test that asks for it.
var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Main runs the tests of a package, stops the shared server and returns the exit
// code.
func Main(m *testing.M) int {
	log.SetLogger(logr.Discard()) // controller-runtime prints a warning if there is no logger
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.remove()
	}
	return code
}

// Tests are the tests of a package that uses a server, for goleak.VerifyTestMain.
type Tests struct{ *testing.M }

// Run is Main.
func (t Tests) Run() int { return Main(t.M) }

// Shared returns the server that all tests of this binary share. The package
// must have a TestMain that calls Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	lab := binary(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = start(lab)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Start returns a server that only this test uses, and that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := start(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return s
}

// binary returns the path of the lab's binary.
func binary(t testing.TB) string {
	t.Helper()
	path, err := find()
	if err == nil {
		return path
	}
	if os.Getenv(Require) == "1" {
		t.Fatalf("%v, and %s=1 forbids skipping", err, Require)
	}
	t.Skip(err)
	return ""
}

var errNoLab = errors.New(
	"needs the lab for a real API server: build it with make -C scripts/lab, or specify its path in " + LabBin)

func find() (string, error) {
	path := os.Getenv(LabBin)
	if path == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, "scripts", "lab", "bin", "lab")
	}
	if _, err := os.Stat(path); err != nil {
		return "", errNoLab
	}
	return path, nil
}

// moduleRoot returns the directory of go.mod. Tests run in the directory of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errNoLab
		}
		dir = filepath.Dir(dir)
	}
}
