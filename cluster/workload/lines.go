package workload

import (
	"fmt"
	"strings"
)

// listed is the number of faults of a workload, and of nodes of a fault, that Lines names.
const listed = 5

// Lines returns faults, one line each. A reason that several nodes share is one line, and of each
// workload with many faults only the first are listed.
func Lines(faults []Fault) (out []string) {
	type key struct{ workload, pod, reason string }
	nodes := map[key][]string{}
	var order []key
	for _, f := range faults {
		k := key{f.Workload, f.Pod, f.Reason()}
		if _, seen := nodes[k]; !seen {
			order = append(order, k)
		}
		nodes[k] = append(nodes[k], f.Node)
	}
	count := map[string]int{}
	for _, k := range order {
		if count[k.workload]++; count[k.workload] > listed {
			continue
		}
		f := Fault{Workload: k.workload, Pod: k.pod, Node: nodes[k][0], Text: k.reason}
		if more := len(nodes[k]); more > 1 {
			f.Node = strings.Join(nodes[k][:min(more, listed)], ", ")
			if more > listed {
				f.Node += fmt.Sprintf(" and %d more", more-listed)
			}
		}
		out = append(out, f.String())
	}
	for _, k := range order {
		if more := count[k.workload] - listed; more > 0 {
			out = append(out, fmt.Sprintf("%s: and %d more of its pods", k.workload, more))
			delete(count, k.workload)
		}
	}
	return out
}
