package role

import (
	"strings"

	"subctl/dataplane"
	"subctl/internal/words"
)

// Dropping describes packets that a node drops now: more than a few, of which the last ones were
// seen a short time ago.
type Dropping struct {
	Reasons  []string // of dataplane.DropReasons, sorted
	Clusters []string // from or to which the packets are, sorted; empty if they belong to none
}

// mostDropping is the maximum number of clusters that text names.
const mostDropping = 10

// Text returns a line for each reason; empty if nothing is dropped. It has no numbers, as each
// change is written.
func (d Dropping) Text() string {
	var lines []string
	for _, reason := range d.Reasons {
		lines = append(lines, reason+": "+dataplane.DropReasons[reason])
	}
	if n := len(d.Clusters); n > 0 {
		lines = append(lines, "from or to "+words.List(d.Clusters[:min(n, mostDropping)]))
	}
	return strings.Join(lines, "\n")
}
