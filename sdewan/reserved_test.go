package sdewan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// Rules may use the policies that every CNF has, which need no object, and no object replaces one.
func TestReservedPolicies(t *testing.T) {
	for _, name := range rest.Reserved {
		r := &batch.Mwan3Rule{Spec: batch.Mwan3RuleSpec{Policy: batch.ObjectName(name)}}
		r.Name = "r"
		k, _ := sdewan.KindOf(r)
		require.Empty(t, k.Uses(r))
		require.NoError(t, sdewan.Check(r))
		p := &batch.Mwan3Policy{Spec: batch.Mwan3PolicySpec{Members: []batch.Mwan3PolicyMember{{Network: "wan1"}}}}
		p.Name = name
		require.ErrorContains(t, sdewan.Check(p), "every CNF has the policy")
	}
}
