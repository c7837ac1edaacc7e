package measure

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
)

// Failover is a row of docs/measurements/failover.json: what a fault of a gateway cost, in several
// runs. Times are in ms.
type Failover struct {
	Fault    string  `json:"fault"`
	Cable    string  `json:"cable"`
	Gateways int     `json:"gateways"`                   // of each cluster
	NoAPI    bool    `json:"api_servers_down,omitempty"` // those of the clusters and the broker's
	Runs     int     `json:"runs"`
	P50      float64 `json:"gap_p50_ms"`
	P99      float64 `json:"gap_p99_ms"`
	Max      float64 `json:"gap_max_ms"`
	Survived float64 `json:"connections_survived"` // of those from pod to pod, as a share of 1, rounded down
	Moved    int     `json:"flows_moved_needlessly"`

	// What the figures above are made of, so that runs can be added.
	Commit      string    `json:"commit,omitempty"` // of the program that was measured
	Flows       int       `json:"flows,omitempty"`  // FailoverFlows when it was measured
	Gaps        []float64 `json:"gaps_ms,omitempty"`
	Controls    []float64 `json:"control_gaps_ms,omitempty"` // of each run
	Connections int       `json:"connections,omitempty"`
	Lost        int       `json:"connections_lost,omitempty"`
	// through a Service, that got neither an answer nor an error
	Silent  int `json:"connections_silent,omitempty"`
	Packets int `json:"packets_lost,omitempty"`
	Dropped int `json:"packets_dropped_by_machine,omitempty"`

	// UDP flows that no gateway carries, in either direction, to which the fault happens; and
	// packets of them that were not answered.
	Others        int `json:"other_flows,omitempty"`
	OthersPackets int `json:"other_packets_lost,omitempty"`
}

// FailoverFlows is the version of the flows, and of what is done to them: runs of other versions
// are not added.
const FailoverFlows = 5

// FailoverRun holds the results of one run with a fault.
type FailoverRun struct {
	Gap               float64 // in ms
	Connections, Lost int     // from pod to pod
	Silent            int     // connections through a Service that got neither an answer nor an error
	Moved             int     // flows
	Packets           int     // that were not answered, of all UDP flows
	Others            int     // UDP flows that do not take what fails
	OthersPackets     int     // those of Packets that are theirs
	Control           float64 // the gap, in ms, of a flow that does not leave its pod: what the machine costs
	Dropped           int     // packets, of any flow and program, for which the machine had no processor in time
}

// Add adds a run.
func (r *Failover) Add(run FailoverRun) {
	r.Gaps, r.Controls = append(r.Gaps, math.Round(run.Gap)), append(r.Controls, math.Round(run.Control))
	r.Connections, r.Lost, r.Silent = r.Connections+run.Connections, r.Lost+run.Lost, r.Silent+run.Silent
	r.Moved, r.Packets, r.Dropped = r.Moved+run.Moved, r.Packets+run.Packets, r.Dropped+run.Dropped
	r.Others, r.OthersPackets = r.Others+run.Others, r.OthersPackets+run.OthersPackets
	r.Runs = len(r.Gaps)
	r.P50, r.P99, r.Max = Percentile(r.Gaps, 50), Percentile(r.Gaps, 99), Percentile(r.Gaps, 100)
	const digits = 10_000
	if r.Connections > 0 {
		r.Survived = float64((r.Connections-r.Lost)*digits/r.Connections) / digits
	}
}

// Control returns the median and the longest gap of the controls, in ms. Ok is false if not all
// runs had a control.
func (r Failover) Control() (p50, longest float64, ok bool) {
	if r.Runs == 0 || len(r.Controls) != r.Runs {
		return 0, 0, false
	}
	return Percentile(r.Controls, 50), Percentile(r.Controls, 100), true
}

// Percentile returns the smallest value that so many percent of the values do not exceed. There
// must be a value.
func Percentile(values []float64, percent int) float64 {
	return slices.Sorted(slices.Values(values))[(percent*len(values)+99)/100-1]
}

// same reports whether two rows are about the same fault.
func (r *Failover) same(o Failover) bool {
	return r.Fault == o.Fault && r.Cable == o.Cable && r.Gateways == o.Gateways && r.NoAPI == o.NoAPI
}

// Resume returns the row of the same fault in a file if the same commit was measured, to add runs
// to it, and otherwise r.
func (r Failover) Resume(file string) (Failover, error) {
	rows, err := Failovers(file)
	for _, o := range rows {
		if r.same(o) && r.Commit == o.Commit && r.Commit != "" && o.Flows == FailoverFlows {
			return o, err
		}
	}
	r.Flows = FailoverFlows
	return r, err
}

// Keep writes a row to a file, where it replaces the row of the same fault. The file is never
// incomplete.
func (r Failover) Keep(file string) error {
	rows, err := Failovers(file)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(rows, r.same); i >= 0 {
		rows[i] = r
	} else {
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b Failover) int {
		return cmp.Or(cmp.Compare(a.Gateways, b.Gateways), cmp.Compare(a.Cable, b.Cable),
			cmp.Compare(number(a.NoAPI), number(b.NoAPI)))
	})
	text := []byte("[\n")
	for i, row := range rows {
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append(text, ",\n"...)
		}
		text = append(text, line...)
	}
	if err := os.WriteFile(file+".next", append(text, "\n]\n"...), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".next", file)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Failovers returns the rows of a file, or no rows if the file does not exist.
func Failovers(file string) (rows []Failover, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return rows, nil
}
