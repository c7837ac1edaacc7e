package cmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/kube"
)

// inventory lists everything that a broker consists of outside its namespaces, and the namespaces.
func (h *hub) inventory(t *testing.T) (out []string) {
	t.Helper()
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Namespace"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	} {
		list, err := kube.ListMetadata(t.Context(), h.client, kind, "")
		require.NoError(t, err)
		for _, o := range list {
			if !strings.HasPrefix(o.Name, "system:") {
				out = append(out, kind.Kind+" "+o.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// A broker goes as a whole, and only then: not with members, not with what others keep in its
// namespaces, and what a namespace in Terminating holds up is told, and finished by the next run.
func TestBrokerRemove(t *testing.T) {
	h := newHub(t)
	before := h.inventory(t)
	require.Contains(t, h.done(t, "broker", "remove", "--yes").stderr,
		"has no broker in namespace submariner-k8s-broker: there is nothing to remove\n")

	h.done(t, "deploy-broker", "--clusterset", "prod")
	_, err := broker.AddMember(t.Context(), h.client, submarinerv1.BrokerNamespace, "west", "uid", broker.Reservation{})
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: submarinerv1.BrokerNamespace, Name: "theirs"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "localhost/none"}}},
	}
	require.NoError(t, h.client.Create(t.Context(), pod))
	deployed := h.inventory(t)

	const members, others = "the broker has members: west: remove each with subctl uninstall", "the namespaces of " +
		"the broker contain objects of others: Pod theirs in namespace submariner-k8s-broker:"
	r := h.run(t, nil, "broker", "remove", "--yes")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "Error: "+members)
	require.Contains(t, r.stderr, others)
	require.Contains(t, r.stderr, "nothing was changed\n")
	r = h.run(t, nil, "broker", "remove", "--yes", "--force=members")
	require.Equal(t, cli.ExitFailed, r.code, "objects of others are another obstacle")
	require.NotContains(t, r.stderr, members)
	r = h.run(t, nil, "broker", "remove", "--dry-run")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Contains(t, r.stderr, members)
	require.Contains(t, r.stdout, "delete Namespace submariner-k8s-broker-prod\ndelete Namespace "+
		"submariner-k8s-broker\ndelete ValidatingAdmissionPolicyBinding ")
	require.Contains(t, r.stdout, "delete CustomResourceDefinition clusters.submariner.io\n")
	require.Equal(t, result{code: cli.ExitUsage, stderr: "Error: --force=nodes names no obstacle: use members, " +
		"objects, or all\n"}, h.run(t, nil, "broker", "remove", "--force=nodes"))
	require.Equal(t, cli.ExitUsage, h.run(t, nil, "broker", "remove", "--force=all").code, "nobody has confirmed it")
	require.Equal(t, deployed, h.inventory(t))

	stuck := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: submarinerv1.BrokerNamespace + "-prod", Name: "stuck", Finalizers: []string{"example.com/hold"},
	}}
	require.NoError(t, h.client.Create(t.Context(), stuck))
	r = h.run(t, nil, "broker", "remove", "--yes", "--force=all", "--timeout", "10s")
	require.Equal(t, cli.ExitTrouble, r.code, r.stderr)
	require.Contains(t, r.stderr, "waiting until submariner-k8s-broker-prod is deleted: out of time: ConfigMap stuck "+
		"has the finalizers example.com/hold")
	require.Contains(t, r.stderr, "run the same command again to finish")
	require.NoError(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(stuck), stuck))
	stuck.Finalizers = nil
	require.NoError(t, h.client.Update(t.Context(), stuck))
	h.done(t, "broker", "remove", "--yes") // without force: the members are gone
	require.Equal(t, before, h.inventory(t))
}

// What a cluster that has joined, or another broker, needs is kept, and goes with the last of them.
func TestBrokerRemoveKeepsWhatIsInUse(t *testing.T) {
	h := newHub(t)
	before := h.inventory(t)
	h.done(t, "deploy-broker")
	h.done(t, "deploy-broker", "-n", "second", "--broker-info", "second.subm")
	r := h.done(t, "broker", "remove", "--yes")
	require.Contains(t, r.stderr,
		"the CustomResourceDefinitions are kept: this cluster hosts a broker (Broker second/submariner-broker)\n")
	require.Contains(t, h.inventory(t), "ClusterRole submariner-view")

	require.NoError(t, h.client.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace},
	}))
	sub := submariner("west")
	sub.Spec.GlobalCIDR = "" // the API server refuses what this version does not have
	require.NoError(t, h.client.Create(t.Context(), sub))
	r = h.done(t, "broker", "remove", "--yes", "-n", "second")
	require.Contains(t, r.stderr,
		"the CustomResourceDefinitions are kept: this cluster has joined (Submariner submariner-operator/submariner)\n")
	require.NoError(t, h.client.Delete(t.Context(), sub))
	h.done(t, "uninstall", "--yes")
	require.Equal(t, append(before, "Namespace submariner-operator"),
		moveLast(h.inventory(t), "Namespace submariner-operator"))
}

func moveLast(list []string, item string) []string {
	return append(slices.DeleteFunc(list, func(s string) bool { return s == item }), item)
}
