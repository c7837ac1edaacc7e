// Package measure records what benchmarks find: one row for each figure, with the
// target that the figure is compared with. It also has the measurements that several
// benchmarks share. "make bench" starts with no rows, collects those of one run, and
// writes docs/measurements/benchmarks.json from them.
//
// A benchmark that compares two sides measures them in turns, many times, and judges
// the median of the ratios: see Compare.
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
	File   = "SUBCTL_BENCH"        // the file that rows are written to; if unset, rows are only logged
	Where  = "SUBCTL_BENCH_WHERE"  // is appended to the names of rows, such as "in QEMU"; unset on this machine
	Repeat = "SUBCTL_BENCH_REPEAT" // how often a measurement is repeated at most, for slow machines
)

// Times returns how often to repeat a measurement that is usually repeated so often.
func Times(usual int) int {
	if most, err := strconv.Atoi(os.Getenv(Repeat)); err == nil && most > 0 {
		return min(most, usual)
	}
	return usual
}

// Row is one figure: the median of its values.
type Row struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Low    float64 `json:"low,omitempty"`  // the lower quartile, if there are several values
	High   float64 `json:"high,omitempty"` // the upper quartile
	Unit   string  `json:"unit"`
	Target string  `json:"target"` // such as "at most 50"
	Holds  bool    `json:"holds"`
}

// AtMost returns a row whose median must not exceed a limit.
func AtMost(name string, values Values, limit float64, unit string) Row {
	r := Info(name, values, unit)
	r.Target = fmt.Sprintf("at most %g", limit)
	r.Holds = values.Median() <= limit
	return r
}

// AtLeast returns a row whose median must reach a limit.
func AtLeast(name string, values Values, limit float64, unit string) Row {
	r := Info(name, values, unit)
	r.Target = fmt.Sprintf("at least %g", limit)
	r.Holds = values.Median() >= limit
	return r
}

// Info returns a row without a target.
func Info(name string, values Values, unit string) Row {
	r := Row{Name: name, Value: round(values.Median()), Unit: unit, Holds: true}
	if len(values) > 1 {
		r.Low = round(values.quantile(0.25))
		r.High = round(values.quantile(0.75))
	}
	return r
}

func round(v float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // FormatFloat wrote the number
	return r
}

// Record logs rows and writes them to File, where they replace older rows of the same
// names.
func Record(t testing.TB, rows ...Row) {
	t.Helper()
	for i := range rows {
		if where := os.Getenv(Where); where != "" {
			rows[i].Name += ", " + where
		}
		r := rows[i]
		t.Logf("%s: %g %s [%g, %g] (%s: %v)", r.Name, r.Value, r.Unit, r.Low, r.High, r.Target, r.Holds)
	}
	if file := os.Getenv(File); file != "" {
		if err := Keep(file, rows...); err != nil {
			t.Fatal(err)
		}
	}
}

// Keep writes rows to a file, sorted by name. They replace older rows of the same names.
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

// Read returns the rows of a file, or no rows if the file does not exist.
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
