// Command gendocs writes the generated documentation: docs/cli from the commands, docs/numbers.md
// from dataplane/numbers.go, docs/metrics.md from agent/metrics.go and agent/dns/metrics.go,
// docs/cable-options.md from the cable drivers, the table in docs/cni.md from cluster/networks, and
// docs/adr/README.md from the records beside it. It must run in the root of the module. Its output
// depends only on the source.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"subctl/cable/drivers"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

// generate returns the content of the files, by path in the module at root.
func generate(root string) (map[string]string, error) {
	files := pages()
	numbers, err := numbers(filepath.Join(root, "dataplane", "numbers.go"))
	if err != nil {
		return nil, err
	}
	files["docs/numbers.md"] = numbers
	if files["docs/metrics.md"], err = metrics(filepath.Join(root, "agent", "metrics.go"),
		filepath.Join(root, "agent", "dns", "metrics.go")); err != nil {
		return nil, err
	}
	files["docs/cable-options.md"] = options(drivers.All())
	if files["docs/cni.md"], err = cni(filepath.Join(root, "docs", "cni.md")); err != nil {
		return nil, err
	}
	if files["docs/adr/README.md"], err = decisions(filepath.Join(root, "docs", "adr")); err != nil {
		return nil, err
	}
	return files, nil
}

// write writes the files, and removes the pages of commands that no longer exist.
func write(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	old, err := written(root)
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, keep := files[name]; !keep {
			if err := os.Remove(filepath.Join(root, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(files[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// written returns the paths of the existing pages, relative to the module at root.
func written(root string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(root, "docs", "cli", "*.md"))
	for i := range found {
		found[i] = "docs/cli/" + filepath.Base(found[i])
	}
	return found, err
}
