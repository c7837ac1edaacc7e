// Command faildoc writes the tables of failover.md and services.md in docs/measurements from the
// JSON files beside them, which "make failover" and "make service-failures" measure.
package main

import (
	"errors"
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

// The lines around a table.
const (
	begin         = "<!-- begin: what make failover measured -->\n"
	beginServices = "<!-- begin: what make service-failures measured -->\n"
	end           = "<!-- end -->\n"
)

// write replaces the tables of the pages in a folder.
func write(folder string) error {
	rows, err := measure.Failovers(filepath.Join(folder, "failover.json"))
	if err != nil {
		return err
	}
	faults, err := measure.ServiceFailures(filepath.Join(folder, "services.json"))
	if err != nil {
		return err
	}
	return errors.Join(replace(filepath.Join(folder, "failover.md"), begin, table(rows)),
		replace(filepath.Join(folder, "services.md"), beginServices, serviceTable(faults)))
}

// replace replaces the text of a file between two lines.
func replace(name, begin, text string) error {
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no lines %q and %q", name, begin, end)
	}
	return os.WriteFile(name, []byte(before+begin+text+end+after), 0o644)
}

func table(rows []measure.Failover) string {
	var b strings.Builder
	b.WriteString(
		"| fault | cable | gateways | API servers | runs | gap p50, ms | p99 | max | control p50, ms | max | connections that survive | flows moved needlessly | packets lost in a run | of other flows, in all runs | dropped by the machine | commit |\n| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n")
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
			usual = fmt.Sprint(p50)
			worst = fmt.Sprint(longest)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %d | %g | %g | %g | %s | %s | %g %% | %d | %s | %s | %s | %s |\n",
			r.Fault, r.Cable, r.Gateways, api, r.Runs, r.P50, r.P99, r.Max, usual, worst,
			math.Round(1e4*r.Survived)/100, r.Moved, lost, others, dropped, r.Commit)
	}
	return b.String()
}
