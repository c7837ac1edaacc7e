// Command faildoc writes the table of docs/failover.md from docs/failover.json, which "make failover" measures.
package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"subctl/internal/measure"
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

// write replaces the table of the page in a folder.
func write(folder string) error {
	rows, err := measure.Failovers(filepath.Join(folder, "failover.json"))
	if err != nil {
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

func table(rows []measure.Failover) string {
	var b strings.Builder
	b.WriteString("| fault | cable | gateways | API servers | runs | gap p50, ms | p99 | max | control p50, ms | max | connections that survive | flows moved needlessly | packets lost in a run | of other flows, in all runs | dropped by the machine | commit |\n| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n")
	for _, r := range rows {
		api := "up"
		if r.NoAPI {
			api = "down"
		}
		var lost, others, dropped, usual, worst string // older rows do not tell
		if r.Connections > 0 {
			lost = fmt.Sprintf("%.0f", float64(r.Packets)/float64(r.Runs))
		}
		if r.Others > 0 {
			others = fmt.Sprintf("%d (%d flows)", r.OthersPackets, r.Others)
		}
		if p50, longest, ok := r.Control(); ok {
			dropped = fmt.Sprintf("%.0f", float64(r.Dropped)/float64(r.Runs))
			usual, worst = fmt.Sprint(p50), fmt.Sprint(longest)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %d | %g | %g | %g | %s | %s | %g %% | %d | %s | %s | %s | %s |\n",
			r.Fault, r.Cable, r.Gateways, api, r.Runs, r.P50, r.P99, r.Max, usual, worst, math.Round(1e4*r.Survived)/100, r.Moved, lost, others, dropped, r.Commit)
	}
	return b.String()
}
