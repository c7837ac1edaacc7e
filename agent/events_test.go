package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"subctl/agent/role"
)

// A warning about an object is one Event, and another one after the object was right.
func TestWarningsOfAReport(t *testing.T) {
	told := &recorder{}
	a := &agent{events: told}
	warning := func(name, kind, reason string) role.Warning {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		return role.Warning{About: pod, Condition: metav1.Condition{Type: kind, Reason: reason, Message: "correct it"}}
	}
	report := func(names ...string) {
		var all []role.Warning
		for _, name := range names {
			all = append(all, warning(name, "T", "Wrong"))
		}
		a.told = a.writeWarnings(all)
	}
	report("a")
	report("a", "b")
	require.Equal(t, []recorded{{"a", "Warning Wrong", "correct it"}, {"b", "Warning Wrong", "correct it"}}, told.got)
	report("b")
	report("a", "b")
	require.Len(t, told.got, 3)
	told.got = nil
	odd := warning("c", "OwnGlobalIP", "InvalidInput")
	waits := warning("c", "Allocated", "IPPoolAllocationFailed")
	a.told = a.writeWarnings([]role.Warning{odd})
	for range 2 {
		a.told = a.writeWarnings([]role.Warning{odd, waits})
	}
	require.Equal(t,
		[]recorded{{"c", "Warning InvalidInput", "correct it"}, {"c", "Warning IPPoolAllocationFailed", "correct it"}},
		told.got, "two warnings about one pod")
}
