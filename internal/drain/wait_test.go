package drain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/internal/progress"
)

// While connections end, their number is printed each time, and their list only at first and
// whenever half of it is gone.
func TestListsAsConnectionsEnd(t *testing.T) {
	var out strings.Builder
	say := progress.New(&out)
	var was awaited
	lists := []int{}
	for _, n := range []int64{40, 40, 30, 12, 10, 9, 5, 5, 3, 2, 0} {
		gw := &submarinerv1.Gateway{}
		gw.Status.Flows = &n
		for i := range min(n, dataplane.MaxFlows) {
			gw.Status.SomeFlows = append(gw.Status.SomeFlows, fmt.Sprintf("tcp 10.1.0.%d:1 → 10.2.0.9:80", i))
		}
		now := awaited{name: "gw-1", why: left(gw), flows: listed(gw)}
		out.Reset()
		now.tell(say, was, "drained")
		if now.why != was.why {
			require.Contains(t, out.String(), "connections")
		} else {
			require.Empty(t, out.String())
		}
		if strings.Contains(out.String(), "tcp 10.1.0.0:1") {
			lists = append(lists, int(n))
		}
		was = now
	}
	require.Equal(t, []int{40, 10, 5, 2}, lists)
	out.Reset()
	now := awaited{name: "gw-1"}
	now.tell(say, was, "drained")
	require.Equal(t, " ✓ gateway gw-1 is drained\n", out.String())
}
