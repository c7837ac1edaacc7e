package pki

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
)

// Written marks every kubeconfig the lab writes, so that taking the lab down removes those and no
// others.
const Written = "# Written by scripts/lab; gone when the lab is down.\n"

// kubeconfig writes a kubeconfig whose cluster, user and context all have the cluster's name.
func (s *Set) kubeconfig(file, cluster, server string, cert, key []byte) error {
	return os.WriteFile(file, []byte(Written+render([]entry{{cluster, server, s.caPEM, cert, key}})), 0o600)
}

// Merge writes one kubeconfig with a context for each cluster; dirs are the clusters' directories.
// The first is current.
func Merge(file string, names, servers, dirs []string) error {
	var entries []entry
	for i := range names {
		s := &Set{dir: dirs[i]}
		e := entry{cluster: names[i], server: servers[i]}
		for path, into := range map[string]*[]byte{"ca.crt": &e.ca, "admin.crt": &e.cert, "admin.key": &e.key} {
			b, err := os.ReadFile(s.path(path))
			if err != nil {
				return fmt.Errorf("reading the admin's credentials of %s: %w", names[i], err)
			}
			*into = b
		}
		entries = append(entries, e)
	}
	return replace(file, []byte(Written+render(entries)))
}

// replace writes a file at once, so that a reader never sees half of it.
func replace(file string, b []byte) error {
	next := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".next")
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}

type entry struct {
	cluster, server string
	ca, cert, key   []byte
}

func render(entries []entry) string {
	b64 := base64.StdEncoding.EncodeToString
	var clusters, users, contexts, current string
	for _, e := range entries {
		clusters += fmt.Sprintf("- name: %s\n  cluster:\n    server: %s\n    certificate-authority-data: %s\n",
			e.cluster, e.server, b64(e.ca))
		users += fmt.Sprintf("- name: %s\n  user:\n    client-certificate-data: %s\n    client-key-data: %s\n",
			e.cluster, b64(e.cert), b64(e.key))
		contexts += fmt.Sprintf("- name: %s\n  context:\n    cluster: %s\n    user: %s\n", e.cluster, e.cluster,
			e.cluster)
		if current == "" {
			current = e.cluster
		}
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n%susers:\n%scontexts:\n%scurrent-context: %s\n",
		clusters, users, contexts, current)
}
