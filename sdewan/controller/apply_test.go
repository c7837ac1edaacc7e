package controller

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
)

func TestApply(t *testing.T) {
	w := newWorld(t)
	pods := w.cnf("cnf-1", 2)
	w.run()
	p := w.policy("cnf-1", "p")
	a := w.rule("cnf-1", "a", "p", "80")
	b := w.rule("cnf-1", "b", "p", "443")
	w.create(b) // before its policy, and before a
	require.Contains(t, w.waits(b, Rejected), "policy p is not defined")
	w.create(a)
	w.create(p)
	w.inSync(p, a, b)
	for _, pod := range pods {
		w.holds(pod, rest.Policies, "p")
		require.ElementsMatch(t, []string{"a", "b"}, pod.EffectiveNames(rest.Rules))
	}
	require.Equal(t, pods[0].Names(rest.Rules), pods[1].Names(rest.Rules), "the order is the same")
	require.Equal(t, "net1", pods[0].Field(rest.Policies, "p", "members").([]any)[0].(map[string]any)["interface"])
	version := a.Status.AppliedVersion
	a.Spec.DestPort = "81"
	require.NoError(t, w.client.Update(t.Context(), a))
	w.inSync(a)
	require.NotEqual(t, version, a.Status.AppliedVersion)
	require.Equal(t, "81", pods[1].Field(rest.Rules, "a", "dest_port"))
	w.delete(p)
	require.Contains(t, w.waits(p, Rejected), "is used")
	w.delete(a)
	w.delete(b)
	w.gone(a)
	w.gone(b)
	w.gone(p)
	for _, pod := range pods {
		require.Empty(t, pod.EffectiveNames(rest.Rules))
		require.Empty(t, pod.EffectiveNames(rest.Policies))
	}
}
