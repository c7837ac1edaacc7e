package cmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable/keys"
	"subctl/cluster"
	"subctl/internal/cli"
)

// repairs breaks Secrets of the member, which another join mends.
func (w *joinWorld) repairs(t *testing.T, key *corev1.Secret) {
	require.Len(t, key.Data[cluster.KeySeed], keys.Size)
	broken := key.DeepCopy()
	delete(broken.Data, cluster.KeySeed)
	broken.ResourceVersion = ""
	require.NoError(t, w.memberC.Update(t.Context(), broken))
	creds := &corev1.Secret{}
	at := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.BrokerSecret}
	require.NoError(t, w.memberC.Get(t.Context(), at, creds))
	good := string(creds.Data["token"])
	creds.Data["token"] = []byte("forged")
	require.NoError(t, w.memberC.Update(t.Context(), creds))

	require.Equal(t, cli.ExitDone, w.run(t, "join", w.file, "--clusterid", "west", "--wait=false").code)
	again := &corev1.Secret{}
	require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(key), again))
	require.Equal(t, key.Data[cluster.KeyPrivate], again.Data[cluster.KeyPrivate])
	require.Len(t, again.Data[cluster.KeySeed], keys.Size)
	require.NotEqual(t, key.Data[cluster.KeySeed], again.Data[cluster.KeySeed])
	require.NoError(t, w.memberC.Get(t.Context(), at, creds))
	require.NotContains(t, []string{"forged", good}, string(creds.Data["token"]))
}

// rejoins revokes the member and joins it again at once, while the API server of the broker still
// accepts the token that the member had: it gets another one, and its gateways read it.
func (w *joinWorld) rejoins(t *testing.T) {
	gateway := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "gateway",
			Namespace: cluster.Namespace,
			Labels:    map[string]string{"app": cluster.GatewayName},
		},
		Spec: corev1.PodSpec{
			Containers:         []corev1.Container{{Name: "gateway", Image: "none"}},
			ServiceAccountName: cluster.GatewayName,
		},
	}
	require.NoError(t, w.memberC.Create(t.Context(), gateway))
	const hub = submarinerv1.BrokerNamespace
	file, err := broker.ReadOldJoinFile(w.file, nil)
	require.NoError(t, err)
	creds := &corev1.Secret{}
	account := &corev1.ServiceAccount{}
	for n := range 3 {
		// the API server remembers the token
		require.Equal(t, cli.ExitDone, w.run(t, "join", w.file, "--clusterid", "west", "--wait=false").code)
		require.NoError(
			t,
			w.memberC.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.BrokerSecret},
				creds),
		)
		before := string(creds.Data["token"])
		require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(gateway), gateway))
		reread := gateway.Annotations["submariner.io/secrets-changed"]
		require.NoError(
			t,
			broker.Revoke(t.Context(), w.hubC, hub, []string{submarinerv1.DefaultClusterSet}, "west",
				file.AdministratorKey(), time.Now()),
		)

		start := time.Now()
		require.Equal(t, cli.ExitDone, w.run(t, "join", w.file, "--clusterid", "west", "--wait=false").code)
		t.Logf("joined %s after revocation %d", time.Since(start), n+1)
		require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(creds), creds))
		require.NotEqual(t, before, string(creds.Data["token"]), "the token of the account that was deleted")
		require.NoError(t,
			w.hubC.Get(t.Context(), client.ObjectKey{Namespace: hub, Name: broker.MemberName("west")}, account))
		member, err := client.New(w.hub.As(string(creds.Data["token"])), client.Options{Scheme: w.hubC.Scheme()})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			owner, err := broker.Accepts(t.Context(), member, hub, "west")
			return err == nil && owner == account.UID
		}, time.Minute, 20*time.Millisecond)
		require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(gateway), gateway))
		require.NotEqual(t, reread, gateway.Annotations["submariner.io/secrets-changed"],
			"the kubelet of the gateway learns of the change")
	}
	require.NoError(t, w.memberC.Delete(t.Context(), gateway))
	// the revocation
	require.NoError(t,
		w.hubC.Delete(t.Context(), &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west", Namespace: hub}}))
}

// policies makes policies that uninstall has to take away, and one that it has not.
func (w *joinWorld) policies(t *testing.T) {
	policy := func(ns, name, of string) *v1alpha1.CablePolicies {
		p := &v1alpha1.CablePolicies{
			ObjectMeta:         metav1.ObjectMeta{Name: name, Namespace: ns},
			ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "vxlan"}},
		}
		if of != "" {
			p.Labels = map[string]string{submarinerv1.ClusterIDLabel: of}
		}
		return p
	}
	const hub = submarinerv1.BrokerNamespace
	require.NoError(t, w.memberC.Create(t.Context(), policy(cluster.Namespace, "mine", "")))
	require.NoError(t, w.hubC.Create(t.Context(), policy(hub, "mine", "west")))
	require.NoError(t, w.hubC.Create(t.Context(), policy(hub, "theirs", "taken")))
}

// keeps sets fields of the Submariner as another user, which another join keeps, even if it
// changes others; --reset takes them away, though they are not the fields of join.
func (w *joinWorld) keeps(t *testing.T) {
	at := client.ObjectKey{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName}
	sub := &v1alpha1.Submariner{}
	require.NoError(t, w.memberC.Get(t.Context(), at, sub))
	first := sub.Spec.DeepCopy()
	patch := client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"cableDrivers":["vxlan","ipsec"],"clusterLabels":{"site":"cloud"},"debug":true}}`))
	require.NoError(t, w.memberC.Patch(t.Context(), sub, patch, client.FieldOwner("kubectl-edit")))

	r := w.run(t, "join", w.file, "--natt=false", "--health-check-interval", "3", "--wait=false")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr,
		" ⚠ the settings of this cluster change:\n     connectionHealthCheck.intervalSeconds: 1 → 3\n   affected clusters: none\n")
	want := sub.Spec.DeepCopy()
	want.ConnectionHealthCheck.IntervalSeconds = 3
	require.NoError(t, w.memberC.Get(t.Context(), at, sub))
	require.Equal(t, *want, sub.Spec)

	before := w.state(t)
	golden(
		t,
		"join_again_dryrun",
		w.run(t, "join", w.file, "--natt=false", "--image", "localhost/subctl:next", "--cluster-labels", "site=onprem",
			"--dry-run"),
	)
	require.Equal(t, before, w.state(t), "a dry run changed something")

	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: cluster.Namespace}}
	limits.Spec.Limits = []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}
	require.NoError(t, w.memberC.Create(t.Context(), limits))
	require.Eventually(t, func() bool {
		r = w.run(t, "join", w.file, "--image", "localhost/subctl:next", "--dry-run")
		return r.code == cli.ExitTrouble
	}, time.Minute, time.Second, "a dry run does not find that the cluster rejects the pods")
	require.Contains(t, r.stderr, "DaemonSet submariner-gateway: its pods would not be created: ")
	require.Contains(t, r.stdout, "localhost/subctl:next")
	require.NoError(t, w.memberC.Delete(t.Context(), limits))

	r = w.run(t, "join", w.file, "--clusterid", "west", "--reset", "--wait=false")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, "clusterLabels.site: cloud → (none)")
	require.NoError(t, w.memberC.Get(t.Context(), at, sub))
	require.Equal(t, *first, sub.Spec)
}
