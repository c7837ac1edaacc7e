// Command benchdoc prints docs/benchmarks.json as the table of docs/benchmarks.md.
package main

import (
	"fmt"
	"os"

	"subctl/internal/measure"
)

func main() {
	rows, err := measure.Read("docs/benchmarks.json")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(`# Benchmarks

Made by ` + "`make bench`" + ` (root). Figures are of one machine on one day; ratios are taken within one run, against the same thing made by
hand in the same namespaces. What every row measures is in the benchmark of that name (` + "`agent/bench_linux_test.go`, `scripts/e2e`" + `).

| what | value | unit | target | holds |
| --- | ---: | --- | --- | --- |
`)
	for _, r := range rows {
		holds := "yes"
		if !r.Holds {
			holds = "**no**"
		}
		if r.Target == "" {
			holds = ""
		}
		fmt.Printf("| %s | %g | %s | %s | %s |\n", r.Name, r.Value, r.Unit, r.Target, holds)
	}
}
