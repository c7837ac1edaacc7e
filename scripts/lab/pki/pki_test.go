package pki

import (
	"bytes"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func config(dir string) Config {
	return Config{
		Name: "cluster1", Dir: dir, Server: "https://10.100.1.1:6443", Local: "https://127.0.0.1:6443",
		SANs: []string{"localhost", "10.100.1.1"}, Service: net.IPv4(10, 101, 0, 1), Domain: "cluster.local",
	}
}

func TestEnsureKeepsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	first, err := Ensure(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	second, err := Ensure(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.caPEM, second.caPEM) {
		t.Error("another CA")
	}
	// Half-made keys are made anew.
	if err := os.Remove(filepath.Join(dir, "pki", "complete")); err != nil {
		t.Fatal(err)
	}
	third, err := Ensure(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first.caPEM, third.caPEM) {
		t.Error("half-made keys were kept")
	}
}

func TestServerIsWhoItSaysAndKeysArePrivate(t *testing.T) {
	dir := t.TempDir()
	s, err := Ensure(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.User("node", "system:node:cluster1-node1", "system:nodes", "cluster1", "https://10.100.1.1:6443",
		"cluster1-node1", "10.100.1.11"); err != nil {
		t.Fatal(err)
	}
	der, _, err := s.sign("probe", "kube-apiserver", "", "10.100.1.1", "kubernetes.default.svc")
	if err != nil || len(der) == 0 {
		t.Fatal(err)
	}
	leaf := s.Admin.Leaf
	if leaf == nil || leaf.Subject.CommonName != "admin" || leaf.Subject.Organization[0] != "system:masters" {
		t.Errorf("the admin is %v", leaf)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots:     s.Pool,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		t.Error(err)
	}
	all := filepath.Join(dir, "all.yaml")
	if err := Merge(all, []string{"cluster1", "again"}, []string{"https://a", "https://b"},
		[]string{dir, dir}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(all)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte(Written)) || bytes.Count(b, []byte("- name: again")) != 3 {
		t.Errorf("merged kubeconfig:\n%s", b)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v, %v", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
