package exchange

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The clustersets with the most members are watched. Until all clustersets were read, the watched ones stay the same.
func TestWatchable(t *testing.T) {
	kinds := Kinds()
	set := func(name string, members int, known bool) *followed {
		f := &followed{side: side{set: Set{Name: name}}}
		for i := range kinds {
			m := &mirror{kind: &kinds[i], known: known, objects: map[string]client.Object{}}
			for n := range members {
				m.objects[fmt.Sprint(n)] = kinds[i].New()
			}
			f.mirrors = append(f.mirrors, m)
		}
		return f
	}
	a, b, c, d := set("a", 2, true), set("b", 2, true), set("c", 3, true), set("d", 2, true)
	names := func(most int) (names []string) {
		all := []*followed{a, b, c, d}
		watched := watchable(all, most)
		for _, f := range all {
			if watched[f] {
				names = append(names, f.set.Name)
			}
		}
		return names
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, names(4))
	require.Equal(t, []string{"a", "c"}, names(2))
	require.Equal(t, []string{"c"}, names(1))

	d.mirrors[1].known = false
	require.Equal(t, []string{"a", "b"}, names(2))
	d.stop = func() {}
	require.Equal(t, []string{"a", "d"}, names(2))
}
