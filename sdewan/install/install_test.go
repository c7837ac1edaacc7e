package install

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
	"subctl/internal/progress"
	"subctl/sdewan"
	"subctl/sdewan/webhook"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// installed installs SD-EWAN in the shared cluster, in which nobody is the kubelet: its pods never
// run.
func installed(t *testing.T) client.Client {
	t.Helper()
	c := kubetest.Shared(t).Client(t)
	objects, err := Render(Options{Image: "example/subctl:v1", Replicas: 2})
	require.NoError(t, err)
	op := &Operation{Client: c, Report: progress.New(&bytes.Buffer{})}
	require.NoError(t, op.Apply(t.Context(), objects))
	require.NoError(t, op.Apply(t.Context(), objects), "installing again repairs")
	return c
}

// remove removes it, and returns what the user is told.
func remove(t *testing.T, c client.Client) string {
	t.Helper()
	remains, err := ReadRemains(t.Context(), c)
	require.NoError(t, err)
	var out bytes.Buffer
	u := &Removal{Client: c, Report: progress.New(&out), Timeout: time.Minute}
	require.NoError(t, u.Run(t.Context(), remains))
	return out.String()
}

// nothingLeft checks that no object of ours is left.
func nothingLeft(t *testing.T, c client.Client) {
	t.Helper()
	all, err := removable()
	require.NoError(t, err)
	for _, o := range all {
		if _, ok := o.(*corev1.Namespace); ok {
			continue
		}
		found, err := kube.Optional(t.Context(), c, o, client.ObjectKeyFromObject(o))
		require.NoError(t, err)
		require.Nil(t, found, "%T %s", o, o.GetName())
	}
	remains, err := ReadRemains(t.Context(), c)
	require.NoError(t, err)
	require.True(t, remains.Empty(), "%v", remains.Lines(c.Scheme()))
}

// Everything that was installed is removed, with all rules, whose finalizers no controller removes
// any more. CNFs stay.
func TestRemove(t *testing.T) {
	c := installed(t)
	ns := kubetest.Shared(t).Namespace(t, "site")
	hooks := webhook.Configuration(WebhookOptions()) // nobody answers
	require.NoError(t, c.Delete(t.Context(), hooks))
	d, err := edge().Deployment()
	require.NoError(t, err)
	d.Namespace = ns
	require.Eventually(t, func() bool { return c.Create(t.Context(), d) == nil }, time.Minute, 50*time.Millisecond,
		"the API server does not notice at once that the webhooks are gone")
	policy := &batch.Mwan3Policy{
		ObjectMeta: metav1.ObjectMeta{
			Name:       "p",
			Namespace:  ns,
			Labels:     map[string]string{sdewan.PurposeLabel: "cnf-1"},
			Finalizers: []string{"rule.finalizers.sdewan.akraino.org"},
		},
	}
	policy.Spec.Members = []batch.Mwan3PolicyMember{{Network: "wan1"}}
	require.NoError(t, c.Create(t.Context(), policy))
	report := &batch.CNFStatus{
		ObjectMeta: metav1.ObjectMeta{Name: "edge", Namespace: ns, Finalizers: []string{"example.com/theirs"}},
	}
	require.NoError(t, c.Create(t.Context(), report))

	remains, err := ReadRemains(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, "1 rule in namespace "+ns, remains.CountRules())
	lines := remains.Lines(c.Scheme())
	require.Equal(t, "delete Mwan3Policy "+ns+"/p (the pods of its CNF keep it)", lines[0])
	require.Equal(t, "delete Namespace sdewan-system", lines[len(lines)-1])
	require.NotContains(t, strings.Join(lines, "\n"), "edge")

	// A finalizer of others keeps the rule, and so its kind: the user is told which.
	require.NoError(
		t,
		c.Patch(
			t.Context(),
			policy,
			client.RawPatch(types.JSONPatchType,
				[]byte(`[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/theirs"}]`)),
		),
	)
	var said bytes.Buffer
	u := &Removal{Client: c, Report: progress.New(&said), Timeout: 20 * time.Second}
	require.ErrorContains(
		t,
		u.Run(t.Context(), remains),
		"time limit of 20s: Mwan3Policy "+ns+
			"/p has the finalizer \"example.com/theirs\", which another program has set: remove it",
	)
	require.Contains(t, said.String(), "CNFs whose pods run keep their configuration")
	require.NoError(t,
		c.Patch(t.Context(), policy, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`))))
	remains, err = ReadRemains(t.Context(), c)
	require.NoError(t, err)
	u.Timeout = 5 * time.Second
	require.ErrorContains(t, u.Run(t.Context(), remains),
		"CNFStatus "+ns+"/edge has the finalizer \"example.com/theirs\", which another program has set: remove it")
	require.NoError(t,
		c.Patch(t.Context(), report, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`))))

	remains, err = ReadRemains(t.Context(), c)
	require.NoError(t, err)
	var out bytes.Buffer
	u = &Removal{Client: c, Report: progress.New(&out), Timeout: time.Minute}
	require.NoError(t, u.Run(t.Context(), remains))
	require.Contains(t, out.String(), "SD-EWAN is removed")
	nothingLeft(t, c)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	none, err := kube.Optional(t.Context(), c, &corev1.Namespace{}, client.ObjectKey{Name: Namespace})
	require.NoError(t, err)
	require.Nil(t, none)
}

// Objects of others in the namespace stay, and so does the namespace, as it was before.
func TestRemoveKeepsObjectsOfOthers(t *testing.T) {
	s := kubetest.Shared(t)
	c := s.Client(t)
	others := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{"team": "edge"}},
	}
	require.NoError(t, c.Create(t.Context(), others))
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: Namespace}}
	require.NoError(t, c.Create(t.Context(), settings))
	installed(t)
	written := []client.Object{ // by pods of ours
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: webhook.SecretName, Namespace: Namespace}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: ControllerName, Namespace: Namespace}},
	}
	for _, o := range written {
		require.NoError(t, c.Create(t.Context(), o))
	}
	require.Eventually(t, func() bool { // the pods of ours, which are no objects of others
		var pods corev1.PodList
		return c.List(t.Context(), &pods, client.InNamespace(Namespace)) == nil && len(pods.Items) == 4
	}, 20*time.Second, 20*time.Millisecond)

	remains, err := ReadRemains(t.Context(), c)
	require.NoError(t, err)
	require.Contains(t, remains.Lines(c.Scheme()), "keep Namespace sdewan-system, which contains ConfigMap settings")
	require.Contains(t, remove(t, c), "namespace sdewan-system is kept: it contains ConfigMap settings")
	nothingLeft(t, c)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(settings), settings))
	require.Nil(t, settings.DeletionTimestamp)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(others), others))
	require.Equal(t, map[string]string{"team": "edge", "kubernetes.io/metadata.name": Namespace}, others.Labels)
	require.False(t, cluster.IsOurs(others.Labels))
	require.NoError(t, c.Delete(t.Context(), others))
}
