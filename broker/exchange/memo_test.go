package exchange

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// A broker or a member that replaces its objects in every pass, each with the longest proofs, does
// not fill the memory of others.
func TestHostileChangesAreNotKept(t *testing.T) {
	key, err := trust.NewKey()
	require.NoError(t, err)
	kinds := Kinds()
	m := &memos{}
	i := kinds.index(&submarinerv1.Cluster{})
	pass := func(n int) {
		m.turn()
		for id := range 50 {
			c := &submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", id), Annotations: map[string]string{}},
			}
			for _, proof := range proofs {
				c.Annotations[proof] = fmt.Sprint(n, id, proof, strings.Repeat("x", MaxProof/len(proofs)))
			}
			_, err := m.grant(c, key.Public())
			require.Error(t, err)
			require.Error(t, m.statement(&kinds[i], c, c.Name, key.Public()).err)
		}
	}
	heap := func() int {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int(s.HeapAlloc)
	}
	before := heap()
	for n := range 2*purge - 1 {
		pass(n)
	}
	require.Less(t, heap()-before, 4*50*MaxProof, "what four passes showed")
	require.LessOrEqual(t, len(m.objects.entries), 2*50)
	runtime.KeepAlive(m)
}
