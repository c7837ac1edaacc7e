package rest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every collection stores its objects in a list of its own, in their order: a replaced object keeps
// its place.
func TestCollections(t *testing.T) {
	var c Config
	paths := map[string]bool{}
	for _, l := range Collections {
		require.Same(t, l, Lookup(l.Module, l.Name))
		require.False(t, paths[l.Path()], l.Path())
		paths[l.Path()] = true
		for _, name := range []string{"b", "a", "c"} {
			o := l.New()
			o.SetName(name)
			c.Put(l, o)
			o.SetName("changed")
		}
		require.Equal(t, []string{"b", "a", "c"}, names(c.List(l)), l)
	}
	before := c.Clone()
	for _, l := range Collections {
		o, found := c.Get(l, "a")
		require.True(t, found)
		c.Put(l, o)
		require.Equal(t, []string{"b", "a", "c"}, names(c.List(l)))
		require.True(t, c.Delete(l, "b"))
		require.False(t, c.Delete(l, "b"))
		_, found = c.Get(l, "b")
		require.False(t, found)
		require.Equal(t, []string{"a", "c"}, names(c.List(l)))
		require.Equal(t, []string{"b", "a", "c"}, names(before.List(l)), "a clone of %s changes with the original", l)
	}
	require.Nil(t, Lookup("mwan3", "zones"))
	require.Equal(t, "/cgi-bin/luci/sdewan/firewall/v1/zones/a%2Fb%3Fc", Zones.ItemPath("a/b?c"))
}

func names(objects []Object) (out []string) {
	for _, o := range objects {
		out = append(out, o.GetName())
	}
	return out
}
