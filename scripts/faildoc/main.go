// Command faildoc writes the table of docs/failover.md from docs/failover.json, which "make failover" measures.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: faildoc DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "faildoc:", err)
		os.Exit(1)
	}
}

// The lines around the table.
const begin, end = "<!-- begin: what make failover measured -->\n", "<!-- end -->\n"

// row is a row of failover.json. Times are in ms.
type row struct {
	Fault    string  `json:"fault"`
	Cable    string  `json:"cable"`
	Gateways int     `json:"gateways"`
	Runs     int     `json:"runs"`
	P50      float64 `json:"gap_p50_ms"`
	P99      float64 `json:"gap_p99_ms"`
	Max      float64 `json:"gap_max_ms"`
	Survived float64 `json:"connections_survived"`
	Moved    int     `json:"flows_moved_needlessly"`
}

// write replaces the table of the page in a folder.
func write(folder string) error {
	text, err := os.ReadFile(filepath.Join(folder, "failover.json"))
	if err != nil {
		return err
	}
	var rows []row
	if err := json.Unmarshal(text, &rows); err != nil {
		return err
	}
	name := filepath.Join(folder, "failover.md")
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no lines %q and %q", name, begin, end)
	}
	return os.WriteFile(name, []byte(before+begin+table(rows)+end+after), 0o644)
}

func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| fault | cable | gateways | runs | gap p50, ms | p99 | max | connections that survive | flows moved needlessly |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| `%s` | %s | %d | %d | %g | %g | %g | %g %% | %d |\n", r.Fault, r.Cable, r.Gateways, r.Runs, r.P50, r.P99, r.Max, 100*r.Survived, r.Moved)
	}
	return b.String()
}
