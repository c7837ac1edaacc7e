// Command benchdoc makes docs/benchmarks.json and docs/benchmarks.md of the rows that "make bench" has collected in a file. It fails
// if a target was missed, after it has written them.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"subctl/internal/measure"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: benchdoc ROWS DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "benchdoc:", err)
		os.Exit(1)
	}
}

// write puts the rows of a file, and the table of them, into a folder.
func write(file, folder string) error {
	rows, err := measure.Read(file)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("%s has no rows", file)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	page, missed := table(rows)
	for name, content := range map[string][]byte{"benchmarks.json": raw, "benchmarks.md": []byte(page)} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return missed
}

// table is the page of all rows; the error names those whose target was missed.
func table(rows []measure.Row) (page string, missed error) {
	var b strings.Builder
	b.WriteString(`# Benchmarks

Made by ` + "`make bench`" + ` (root). Figures are of one machine on one day; ratios are taken within one run, against the same thing made by
hand in the same namespaces. What every row measures is in the benchmark of that name (` + "`agent/bench_linux_test.go`, `scripts/e2e`" + `). Rows "in QEMU" are of
a kernel with WireGuard and ESP, emulated: only their ratios tell something.

| what | value | unit | target | holds |
| --- | ---: | --- | --- | --- |
`)
	for _, r := range rows {
		holds := "yes"
		if !r.Holds {
			holds = "**no**"
			missed = errors.Join(missed, fmt.Errorf("%s: %g %s: wanted %s", r.Name, r.Value, r.Unit, r.Target))
		}
		if r.Target == "" {
			holds = ""
		}
		fmt.Fprintf(&b, "| %s | %g | %s | %s | %s |\n", r.Name, r.Value, r.Unit, r.Target, holds)
	}
	return b.String(), missed
}
