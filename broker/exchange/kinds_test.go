package exchange_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kube"
)

// Every row of the table is complete, and what it states about the kind is true.
func TestKindsAreComplete(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	resources := map[string]bool{}
	names := map[string]bool{}
	variables := map[string]bool{}
	for _, k := range exchange.Kinds() {
		gvk, err := apiutil.GVKForObject(k.Object, scheme)
		require.NoError(t, err)
		require.Equal(t, k.GroupVersion.WithKind(k.Name), gvk)
		list, err := apiutil.GVKForObject(k.List, scheme)
		require.NoError(t, err)
		require.Equal(t, k.GroupVersion.WithKind(k.Name+"List"), list)
		require.Equal(t, kube.Resource(gvk), k.Resource)

		require.True(t, (k.Named == nil) != (k.Free == nil), "%s goes one way", k.Name)
		require.Equal(t, k.Status == nil, k.SetStatus == nil, k.Name)
		require.NotEmpty(t, k.Noun, k.Name)
		require.NotEmpty(t, k.Verbs, k.Name)
		require.NotEmpty(t, k.SizeVariable.Expression, k.Name)
		require.Positive(t, k.MaxSize, k.Name)
		require.Positive(t, k.PerCluster, k.Name)
		require.GreaterOrEqual(t, k.Quota, k.PerCluster, k.Name)
		require.NotEmpty(t, k.Fields(k.New()), k.Name)
		for set, value := range map[*map[string]bool]string{
			&resources: k.Resource,
			&names:     k.Name,
			&variables: k.SizeVariable.Name,
		} {
			require.False(t, (*set)[value], "%s occurs twice", value)
			(*set)[value] = true
		}
	}
}

func TestNameRules(t *testing.T) {
	one := exchange.NameRule{Prefix: "{id}"}
	require.True(t, one.Owns("a", "a"))
	require.False(t, one.Owns("a", "a-b"))
	require.Equal(t, "variables.name == variables.id", one.Expression())

	many := beacons().Named.Names
	require.True(t, many.Owns("a", "a.x"))
	for _, name := range []string{"a", "a.", "b.x", "a-b.x", "a.x.y", "a.X"} {
		require.False(t, many.Owns("a", name), name)
	}
	require.Equal(t,
		"(variables.name.startsWith(variables.id + '.') && variables.name.substring(size(variables.id) + size('.')).matches('^[a-z0-9-]+$'))",
		many.Expression())
	require.Equal(t, "variables.id + '.<name>'", many.Form())
	require.Equal(t, `'it\'s \\d'`, exchange.Quote(`it's \d`))
}

func lenOf(t *testing.T, list client.ObjectList) int {
	t.Helper()
	n := 0
	require.NoError(t, meta.EachListItem(list, func(runtime.Object) error { n++; return nil }))
	return n
}

// Of a cluster among few, as many policies, and pages of exported Services, have a place as hardly
// any cluster has, so that it need not join again.
func TestFewClustersGetMany(t *testing.T) {
	most := map[string]int{"cablepolicies": 8, "clusters": 1, "endpoints": 4, "exportedservices": 16}
	for _, k := range exchange.Kinds() {
		want := most[k.Resource]
		for joined := range 32 {
			n, needed := k.ReservedFor(0, joined*want, brokertest.Grant("east"))
			require.Equal(t, want, n, k.Resource)
			require.Equal(t, 1, needed, k.Resource)
		}
	}
}

// As many clusters as the quotas are for get what they need, whatever the first ones got.
func TestReservedFor(t *testing.T) {
	for _, k := range exchange.Kinds() {
		stored := 0
		least := k.Reserved
		if k.Counted() {
			least = 2 * k.Reserved
		}
		for i := range 1000 {
			n, needed := k.ReservedFor(0, stored, brokertest.Grant("east"))
			require.Equal(t, 1, needed)
			require.LessOrEqual(t, n, least, "it never gets more than those before")
			require.Positive(t, n)
			require.LessOrEqual(t, stored+n, k.Quota, "%s of cluster %d", k.Resource, i)
			stored = stored + n
			least = n
		}
		n, needed := k.ReservedFor(7, k.Quota-k.PerCluster, brokertest.Grant("east"))
		require.Equal(t, n, needed)
		require.Equal(t, min(7, k.PerCluster), n)
	}
}
