package main

import (
	"fmt"
	"strings"

	"subctl/internal/measure"
)

// serviceTable returns the table of what faults cost clients that use the name of a Service.
func serviceTable(rows []measure.ServiceFailure) string {
	var b strings.Builder
	b.WriteString(
		"| fault | runs | last wrong answer p50, ms | p99 | max | requests lost in a run | gap p50, ms | max | of own pods first, lost | " +
			"lost on return | connections broken | commit |\n" +
			"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
	)
	for _, r := range rows {
		if len(r.Runs) > 0 {
			fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s |\n", r.Fault, len(r.Runs), quantiles(r.Wrongs(), 50, 99, 100),
				requests(r), r.Commit)
		}
	}
	return b.String()
}

// quantiles returns columns.
func quantiles(values []float64, percents ...int) string {
	var out []string
	for _, percent := range percents {
		out = append(out, fmt.Sprintf("%g", measure.Percentile(values, percent)))
	}
	return strings.Join(out, " | ")
}

// requests returns the columns of requests and connections, which are empty if there were none.
func requests(r measure.ServiceFailure) string {
	var sum measure.ServiceRun
	for _, run := range r.Runs {
		sum.Spread.Sent += run.Spread.Sent
		sum.Spread.Lost += run.Spread.Lost
		sum.Own.Lost += run.Own.Lost
		sum.Spread.Back += run.Spread.Back + run.Own.Back
		sum.Opened += run.Opened
		sum.Broken += run.Broken
	}
	if sum.Spread.Sent == 0 {
		return " |  |  |  |  | "
	}
	each := func(n int) string {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(len(r.Runs))), ".0")
	}
	return fmt.Sprintf("%s of %s | %s | %s | %s | %s of %s", each(sum.Spread.Lost), each(sum.Spread.Sent),
		quantiles(r.Gaps(), 50, 100), each(sum.Own.Lost), each(sum.Spread.Back), each(sum.Broken), each(sum.Opened))
}
