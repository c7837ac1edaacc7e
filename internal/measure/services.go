package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
)

// ServiceFailure is a row of docs/measurements/services.json: what a fault cost clients that use
// the name of a Service, run by run.
type ServiceFailure struct {
	Fault  string       `json:"fault"`
	Commit string       `json:"commit,omitempty"` // of the program that was measured
	Runs   []ServiceRun `json:"runs"`
}

// ServiceRun holds the results of one run with a fault. Times are in ms.
type ServiceRun struct {
	// Spread are requests for a Service with pods in all clusters, which are used alike. Own are
	// requests for one whose pods in the cluster of the client are used first.
	Spread ServiceRequests `json:"spread"`
	Own    ServiceRequests `json:"own"`
	// Wrong is the time from the beginning of the fault until the last request was sent that
	// failed, or that was answered by who is gone; 0 if there was none.
	Wrong float64 `json:"wrong_ms"`
	// Opened connections to the Service were under way, and Broken ones have ended.
	Opened int `json:"connections,omitempty"`
	Broken int `json:"connections_broken,omitempty"`
}

// ServiceRequests are requests at a steady rate.
type ServiceRequests struct {
	Sent int     `json:"sent"`
	Lost int     `json:"lost"`   // while the fault lasts
	Gap  float64 `json:"gap_ms"` // the longest without an answer
	Back int     `json:"lost_on_return,omitempty"`
}

// Wrongs returns the times until the last wrong request, 0 for runs without one.
func (f ServiceFailure) Wrongs() []float64 {
	var out []float64
	for _, run := range f.Runs {
		out = append(out, math.Round(run.Wrong))
	}
	return out
}

// Gaps returns the longest time without an answer of each run, of the requests to the Service that
// uses all clusters alike.
func (f ServiceFailure) Gaps() []float64 {
	var out []float64
	for _, run := range f.Runs {
		out = append(out, math.Round(run.Spread.Gap))
	}
	return out
}

// Resume returns the row of the same fault in a file if the same commit was measured, to add runs
// to it, and otherwise an empty one.
func (f ServiceFailure) Resume(file string) (ServiceFailure, error) {
	rows, err := ServiceFailures(file)
	for _, row := range rows {
		if row.Fault == f.Fault && row.Commit == f.Commit && f.Commit != "" {
			return row, err
		}
	}
	f.Runs = nil
	return f, err
}

// Keep writes a row to a file, where it replaces the row of the same fault. The file is never
// incomplete.
func (f ServiceFailure) Keep(file string) error {
	rows, err := ServiceFailures(file)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(rows, func(row ServiceFailure) bool { return row.Fault == f.Fault }); i >= 0 {
		rows[i] = f
	} else {
		rows = append(rows, f)
	}
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

// ServiceFailures returns the rows of a file, or no rows if the file does not exist.
func ServiceFailures(file string) (rows []ServiceFailure, err error) {
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
