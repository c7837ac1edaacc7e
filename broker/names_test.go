package broker

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
)

// No two clusters have an object of one name on a broker, nor two objects of one cluster, however
// the IDs are chosen: by the name, admission policies decide whose an object is.
func TestNamesAreOfOneCluster(t *testing.T) {
	ends := []string{
		"",
		"-b",
		memberBindingSuffix,
		invitedTokenSuffix,
		tokenName("", "x")[len(MemberName("x")):],
		"-" + JoinerName,
	}
	starts := []string{"a", "cluster-a", "invitee-a", "token-invited", "cluster", "x-token", "a-submariner-k8s-broker"}
	ids := map[string]bool{}
	for _, start := range starts {
		for _, middle := range ends {
			for _, end := range ends {
				if id := start + middle + end; submarinerv1.CheckClusterID(id) == nil {
					ids[id] = true
				}
			}
		}
	}
	require.Greater(t, len(ids), 50)
	const hex = "-token-0123456789abcdef0123456789abcdef"
	owners := map[string]string{JoinerName: "the broker", MemberRoleName: "the broker", quotaName: "the broker"}
	for id := range ids {
		for _, name := range []string{
			MemberName(id),
			InviteeName(id),
			memberBindingName(id),
			tokenName(InviteeName(id), id),
			MemberName(id) + hex,
		} {
			require.Empty(t, owners[name], "of %s and of %s: %s", owners[name], id, name)
			owners[name] = fmt.Sprintf("cluster %q", id)
		}
	}
}

// What cannot be an ID is what the names of objects end with.
func TestReservedIDs(t *testing.T) {
	for _, end := range []string{memberBindingSuffix, invitedTokenSuffix, tokenName("", "x")[len(MemberName("x")):]} {
		require.Error(t, submarinerv1.CheckClusterID("x"+end), end)
	}
	for _, id := range []string{
		"a-token",
		"a-token-invitee",
		"token-invited",
		"submariner-k8s-broker-cluster",
		"a-token-0123456789abcdef",
		"a-token-0123456789abcdef0123456789abcdeg",
	} {
		require.NoError(t, submarinerv1.CheckClusterID(id))
	}
}
