// Command benchdoc writes benchmarks.json and benchmarks.md in docs/measurements from the rows that
// "make bench" has collected in a file. It fails if a target was missed, after it has written them.
//
// With --add, for a run of a few benchmarks, the rows replace older rows of the same names, and all
// other rows stay.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"subctl/internal/measure"
)

func main() {
	add := flag.Bool("add", false, "keep the rows that are not in ROWS")
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "usage: benchdoc [--add] ROWS DIRECTORY") }
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(flag.Arg(0), flag.Arg(1), *add); err != nil {
		fmt.Fprintln(os.Stderr, "benchdoc:", err)
		os.Exit(1)
	}
}

// write writes the rows of a file, and a page with their table, to a folder. If add is true, older
// rows of other names stay.
func write(file, folder string, add bool) error {
	rows, err := measure.Read(file)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("%s has no rows", file)
	}
	all := filepath.Join(folder, "benchmarks.json")
	if !add {
		if err := os.Remove(all); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := measure.Keep(all, rows...); err != nil {
		return err
	}
	if rows, err = measure.Read(all); err != nil {
		return err
	}
	page, missed := table(rows)
	if err := os.WriteFile(filepath.Join(folder, "benchmarks.md"), []byte(page), 0o644); err != nil {
		return err
	}
	return missed
}

// table returns the page of all rows; the error names the rows whose targets were missed.
func table(rows []measure.Row) (page string, missed error) {
	var b strings.Builder
	b.WriteString(`# Benchmarks

Made by ` + "`make bench`" + ` (root). The rows of one benchmark are of one run; those of different benchmarks
may be of different machines and days. What a row measures is explained in the benchmark with the
row's name (` + "`*bench*_test.go`, `*/leaks_*test.go`, `*/loss_linux_test.go`, `scripts/e2e`" + `).

- A value is the median of all measurements; the quartiles show the spread. A row without quartiles
  is one measurement.
- Packets lost are those of the worst run.
- "Of the same path by hand" compares two paths that exist at the same time, ours and one made by
  hand. They are measured in turns, for a fraction of a second each; the value is the median of the
  turns' ratios.
- CPU time is the time that CPUs spent on the work. Other programs on the machine do not change it,
  unlike the time that passes.
- Rows "in QEMU" are of a kernel with WireGuard and ESP, in an emulated machine whose clock counts
  instructions: only their ratios mean anything.

| what | value | quartiles | unit | target | holds |
| --- | ---: | ---: | --- | --- | --- |
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
		spread := ""
		if r.Low != 0 || r.High != 0 {
			spread = fmt.Sprintf("%g – %g", r.Low, r.High)
		}
		fmt.Fprintf(&b, "| %s | %g | %s | %s | %s | %s |\n", r.Name, r.Value, spread, r.Unit, r.Target, holds)
	}
	return b.String(), missed
}
