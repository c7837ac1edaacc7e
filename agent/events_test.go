package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"subctl/agent/mesh"
)

// An object is warned of once, and again after it was right.
func TestWarningsOfAReport(t *testing.T) {
	told := &recorder{}
	a := &agent{events: told}
	report := func(names ...string) {
		var all []mesh.Warning
		for _, name := range names {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
			all = append(all, mesh.Warning{About: pod, Condition: metav1.Condition{Type: "T", Reason: "Wrong", Message: "correct it"}})
		}
		a.told = a.warnOf(all)
	}
	report("a")
	report("a", "b")
	require.Equal(t, []recorded{{"a", "Warning Wrong", "correct it"}, {"b", "Warning Wrong", "correct it"}}, told.got)
	report("b")
	report("a", "b")
	require.Len(t, told.got, 3)
}
