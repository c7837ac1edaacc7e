// Package measure keeps what benchmarks found: one row a figure, with the target
// it is held against. "make bench" collects the rows of one run, from nothing, and makes
// docs/benchmarks.json of them.
package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The environment of a benchmark.
const (
	File   = "SUBCTL_BENCH"        // names the file rows are kept in; unset: they are but logged
	Where  = "SUBCTL_BENCH_WHERE"  // added to the rows' names, such as "in QEMU"; unset: on this machine
	Repeat = "SUBCTL_BENCH_REPEAT" // how often a measurement is repeated at most, where machines are slow
)

// Times is how often a measurement is to be repeated that is repeated so often where there
// is no hurry.
func Times(usual int) int {
	if most, err := strconv.Atoi(os.Getenv(Repeat)); err == nil && most > 0 {
		return min(most, usual)
	}
	return usual
}

// Row is one figure.
type Row struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Target string  `json:"target"` // such as "at most 50"
	Holds  bool    `json:"holds"`
}

// AtMost makes a row whose value must not exceed a limit.
func AtMost(name string, value, limit float64, unit string) Row {
	return Row{Name: name, Value: round(value), Unit: unit, Target: fmt.Sprintf("at most %g", limit), Holds: value <= limit}
}

// AtLeast makes a row whose value must reach a limit.
func AtLeast(name string, value, limit float64, unit string) Row {
	return Row{Name: name, Value: round(value), Unit: unit, Target: fmt.Sprintf("at least %g", limit), Holds: value >= limit}
}

// Info makes a row that is held against nothing.
func Info(name string, value float64, unit string) Row {
	return Row{Name: name, Value: round(value), Unit: unit, Holds: true}
}

func round(v float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // of what was just written
	return r
}

// Record logs rows, and keeps them in place of older ones of the same names.
func Record(t testing.TB, rows ...Row) {
	t.Helper()
	for i := range rows {
		if where := os.Getenv(Where); where != "" {
			rows[i].Name += ", " + where
		}
		r := rows[i]
		t.Logf("%s: %g %s (%s: %v)", r.Name, r.Value, r.Unit, r.Target, r.Holds)
	}
	if file := os.Getenv(File); file != "" {
		if err := Keep(file, rows...); err != nil {
			t.Fatal(err)
		}
	}
}

// Keep puts rows into a file, sorted by name, in place of older ones of the same names.
func Keep(file string, rows ...Row) error {
	all, err := Read(file)
	if err != nil {
		return err
	}
	for _, r := range rows {
		all = slices.DeleteFunc(all, func(o Row) bool { return o.Name == r.Name })
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// Read returns the rows of a file; none if there is no file.
func Read(file string) ([]Row, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rows []Row
	if err := json.Unmarshal(b, &rows); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return rows, nil
}
