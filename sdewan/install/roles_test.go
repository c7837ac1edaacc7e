package install

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"subctl/api/crds"
	"subctl/sdewan"
)

// Whoever has the ClusterRole edit in a namespace reads and writes all kinds of rules there; view
// does not show rules that hold keys.
func TestRolesOfUsers(t *testing.T) {
	may := func(role *rbacv1.ClusterRole, verb string, k sdewan.Kind) bool {
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, k.GVK.Group) && slices.Contains(r.Resources, k.Resource) &&
				slices.Contains(r.Verbs, verb)
		})
	}
	roles := crds.SDEWANRoles()
	view := roles[0]
	edit := roles[1]
	for _, k := range sdewan.Kinds() {
		for _, verb := range []string{
			"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
		} {
			require.True(t, may(edit, verb, k), "%s %s.%s", verb, k.Resource, k.GVK.Group)
		}
		keys := k.GVK.Kind == "IpsecSite" || k.GVK.Kind == "IpsecHost"
		require.Equal(t, !keys, may(view, "list", k), "%s.%s", k.Resource, k.GVK.Group)
		require.False(t, may(view, "patch", k))
	}
	require.Contains(t, edit.Annotations, sdewan.BucketAnnotation)
}
