package cmd

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable/keys"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/kube"
)

// rotate gives the joined member a new key. There are no agents: a goroutine stands in
// for the gateway.
func (w *joinWorld) rotate(t *testing.T) {
	require.Equal(
		t,
		result{
			code:   cli.ExitFailed,
			stderr: "Error: no gateway is active to publish a new key: see subctl show gateways\n",
		},
		w.run(t, "rotate-key"),
	)

	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace}
	}
	g := gateway("west", "n1", 0, connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9")))
	g.ObjectMeta = meta("n1")
	require.NoError(t, w.memberC.Create(t.Context(), g))
	secret := &corev1.Secret{ObjectMeta: meta(cluster.ClusterKeySecret)}
	require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	before := secret.DeepCopy()

	dry := w.run(t, "rotate-key", "--dry-run")
	require.Equal(
		t,
		result{stdout: "update Secret submariner-operator/submariner-cluster-key: private, public\n" +
			"wait until the gateway of cluster \"west\" has published the new public key\nwait until its connections are up: 1\ndry run: nothing is changed\n"},
		dry,
	)
	require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	require.Equal(t, before.ResourceVersion, secret.ResourceVersion, "a dry run changed something")

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.beGateway(ctx)
	}()
	r := w.run(t, "rotate-key", "--timeout", "1m")
	stop()
	<-done
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr,
		" ✓ Secret submariner-operator/submariner-cluster-key has a new key; the old key is deleted\n")
	require.Contains(t, r.stderr, " ✓ connections that are up again: 1\n")
	require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	require.NotEqual(t, before.Data[cluster.KeyPrivate], secret.Data[cluster.KeyPrivate])
	require.Equal(t, before.Data[cluster.KeySeed], secret.Data[cluster.KeySeed])
	private, err := keys.ParsePrivate(secret.Data[cluster.KeyPrivate])
	require.NoError(t, err)
	require.Contains(t, r.stderr, "to publish "+private.Public().String())
	require.NoError(t, w.memberC.Delete(t.Context(), g))
	require.NoError(t, w.memberC.Delete(t.Context(), &submarinerv1.Cluster{ObjectMeta: meta("west")}))
}

// beGateway publishes the public key in the Secret, and reports, on a clock of its own.
func (w *joinWorld) beGateway(ctx context.Context) {
	at := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.ClusterKeySecret}
	for now := int64(1_000_000); ctx.Err() == nil; now += 3 {
		secret := &corev1.Secret{}
		if w.memberC.Get(ctx, at, secret) != nil {
			continue
		}
		c := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west", Namespace: cluster.Namespace}}
		c.Spec = submarinerv1.ClusterSpec{
			ClusterID:   "west",
			ServiceCIDR: []string{},
			ClusterCIDR: []string{},
			GlobalCIDR:  []string{},
			PublicKey:   string(secret.Data[cluster.KeyPublic]),
		}
		_ = kube.Apply(ctx, w.memberC, "test", c)
		g := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: cluster.Namespace}}
		g.Annotations = map[string]string{submarinerv1.TimestampAnnotation: strconv.FormatInt(now, 10)}
		_ = w.memberC.Patch(
			ctx,
			g,
			client.MergeFrom(
				&submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: cluster.Namespace}}),
		)
		time.Sleep(200 * time.Millisecond)
	}
}
