package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"subctl/lab/node"
	"subctl/lab/pki"
	"subctl/lab/plan"
)

// lab has the directories of this lab. The directory of each cluster describes the cluster, in
// cluster.json.
type lab struct{ dir, kubeconfigs string }

// defaultKubeconfigs is kubeconfigs/ of the repository this binary was built in, else of the
// working directory.
func defaultKubeconfigs() string {
	if self, err := os.Executable(); err == nil {
		repository := filepath.Join(filepath.Dir(self), "..", "..", "..")
		if info, err := os.Stat(filepath.Join(repository, "kubeconfigs")); err == nil && info.IsDir() {
			return filepath.Join(repository, "kubeconfigs")
		}
	}
	return "kubeconfigs"
}

func (l *lab) clusterDir(c plan.Cluster) string { return filepath.Join(l.dir, c.Name()) }

func (l *lab) place(n plan.Node) (node.Place, error) {
	bin, err := binDir()
	return node.Place{Dir: filepath.Join(l.dir, n.Name()), ClusterDir: l.clusterDir(n.Cluster), Bin: bin}, err
}

// binDir returns the directory of this binary and all others.
func binDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	bin := filepath.Dir(self)
	if _, err := os.Stat(filepath.Join(bin, "labkube")); err != nil {
		return "", fmt.Errorf("labkube should lie beside %s: run make in scripts/lab (%w)", self, err)
	}
	return bin, nil
}

// clusters lists what was brought up, by number.
func (l *lab) clusters() ([]plan.Cluster, error) {
	files, err := filepath.Glob(filepath.Join(l.dir, "cluster*", "cluster.json"))
	if err != nil {
		return nil, err
	}
	var clusters []plan.Cluster
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var c plan.Cluster
		if err := json.Unmarshal(b, &c); err != nil {
			return nil, fmt.Errorf("reading %s: %w; lab down clears it away", file, err)
		}
		clusters = append(clusters, c)
	}
	slices.SortFunc(clusters, func(a, b plan.Cluster) int { return a.Number - b.Number })
	return clusters, nil
}

// running is clusters for commands that have no sense without any.
func (l *lab) running() ([]plan.Cluster, error) {
	clusters, err := l.clusters()
	if err == nil && len(clusters) == 0 {
		err = fmt.Errorf("no lab in %s: lab up makes one", l.dir)
	}
	return clusters, err
}

func (l *lab) record(c plan.Cluster) error {
	if err := os.MkdirAll(l.clusterDir(c), 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	file := filepath.Join(l.clusterDir(c), "cluster.json")
	if err := os.WriteFile(file+".next", b, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".next", file)
}

// writeKubeconfigs writes clusterN.yaml for each cluster and lab.yaml for all of them.
func (l *lab) writeKubeconfigs(clusters []plan.Cluster) error {
	if err := os.MkdirAll(l.kubeconfigs, 0o755); err != nil {
		return err
	}
	var names, servers, dirs []string
	for _, c := range clusters {
		names = append(names, c.Name())
		servers = append(servers, c.Server())
		dirs = append(dirs, l.clusterDir(c))
		file := filepath.Join(l.kubeconfigs, c.Name()+".yaml")
		if err := pki.Merge(file, names[len(names)-1:], servers[len(servers)-1:], dirs[len(dirs)-1:]); err != nil {
			return err
		}
	}
	return pki.Merge(filepath.Join(l.kubeconfigs, "lab.yaml"), names, servers, dirs)
}

// say tells the user, on stderr, what happened when.
func say(started time.Time, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.1fs %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
