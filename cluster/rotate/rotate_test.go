package rotate_test

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable/keys"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/rotate"
	"subctl/internal/progress"
)

// rotating is a cluster with a gateway that publishes the key it is shown.
type rotating struct {
	c       client.WithWatch
	key     keys.PrivateKey
	deaf    bool // the gateway does not read the new key
	broken  bool // connections do not come back
	refuse  error
	denied  string // verb and resource that the user may not
	beats   int64
	said    bytes.Buffer
	subject *rotate.Operation
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	r := &rotating{}
	var err error
	r.key, err = keys.Generate()
	require.NoError(t, err)
	sub := clustertest.Submariner()
	sub.Name = "submariner"
	sub.Namespace = cluster.Namespace
	sub.Labels = map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}
	s := &corev1.Secret{ObjectMeta: clustertest.In(cluster.ClusterKeySecret), Data: map[string][]byte{
		cluster.KeyPrivate: r.key.Bytes(),
		cluster.KeyPublic:  []byte(r.key.Public().String()),
		cluster.KeySeed:    bytes.Repeat([]byte{7}, keys.Size),
	}}
	pod := &corev1.Pod{ObjectMeta: clustertest.In("submariner-gateway-abc")}
	pod.Labels = map[string]string{"app": cluster.GatewayName}
	g := clustertest.Gateway(submarinerv1.HAStatusActive, "")
	g.Status.Connections = []submarinerv1.Connection{
		{Status: submarinerv1.Connected, Endpoint: submarinerv1.EndpointSpec{CableName: "submariner-cable-east-1"}},
		{
			Status:   submarinerv1.ConnectionError,
			Endpoint: submarinerv1.EndpointSpec{CableName: "submariner-cable-north-1"},
		},
	}
	r.c = interceptor.NewClient(
		clustertest.Client(t, sub, s, pod, g, &submarinerv1.Cluster{ObjectMeta: clustertest.In("west")}),
		interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
				review := obj.(*authorizationv1.SelfSubjectAccessReview)
				review.Status.Allowed = review.Spec.ResourceAttributes.Verb+" "+
					review.Spec.ResourceAttributes.Resource != r.denied &&
					review.Spec.ResourceAttributes.Verb != "*"
				return nil
			},
			List: func(
				ctx context.Context,
				c client.WithWatch,
				list client.ObjectList,
				opts ...client.ListOption,
			) error {
				if _, ok := list.(*submarinerv1.GatewayList); ok {
					r.beat(t, c)
				}
				return c.List(ctx, list, opts...)
			},
			Update: func(
				ctx context.Context,
				c client.WithWatch,
				obj client.Object,
				opts ...client.UpdateOption,
			) error {
				if r.refuse != nil {
					return r.refuse
				}
				return c.Update(ctx, obj, opts...)
			},
			Patch: func(
				ctx context.Context,
				c client.WithWatch,
				obj client.Object,
				patch client.Patch,
				opts ...client.PatchOption,
			) error {
				if _, ok := obj.(*corev1.Pod); ok && !r.deaf {
					defer r.publish(t, c)
				}
				return c.Patch(ctx, obj, patch, opts...)
			},
		},
	)
	r.subject = &rotate.Operation{
		Cluster: cluster.Side{Client: r.c, URL: "https://west:6443"},
		Report:  progress.New(&r.said),
		Timeout: 1500 * time.Millisecond,
	}
	return r
}

// publish does what the gateway does when it is shown a key.
func (r *rotating) publish(t *testing.T, c client.Client) {
	c1 := &submarinerv1.Cluster{ObjectMeta: clustertest.In("west")}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(c1), c1))
	c1.Spec.PublicKey = string(r.secret(t).Data[cluster.KeyPublic])
	require.NoError(t, c.Update(t.Context(), c1))
}

// beat writes the gateway's report, on a clock that runs fast.
func (r *rotating) beat(t *testing.T, c client.Client) {
	r.beats += 6
	g := clustertest.Gateway(submarinerv1.HAStatusActive, "")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(g), g))
	g.Annotations = map[string]string{submarinerv1.TimestampAnnotation: strconv.FormatInt(r.beats, 10)}
	if r.broken && r.beats > 6 {
		g.Status.Connections[0].Status = submarinerv1.Connecting
	}
	require.NoError(t, c.Update(t.Context(), g))
}

func (r *rotating) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	require.NoError(t,
		r.c.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.ClusterKeySecret}, s))
	return s
}

func (r *rotating) run(t *testing.T) error {
	t.Helper()
	found, err := r.subject.Check(t.Context())
	require.NoError(t, err)
	if err := r.subject.Run(t.Context(), found); err != nil {
		return err
	}
	return r.subject.Wait(t.Context(), found)
}

func TestRotateKey(t *testing.T) {
	r := newRotating(t)
	found, err := r.subject.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{
		"update Secret submariner-operator/submariner-cluster-key: private, public",
		`wait until the gateway of cluster "west" has published the new public key`,
		"wait until its connections are up: 1",
	}, found.Lines())
	require.Equal(t, r.key.Bytes(), r.secret(t).Data[cluster.KeyPrivate], "looking changes nothing")

	r.subject.Timeout = time.Minute
	require.NoError(t, r.run(t), r.said.String())
	data := r.secret(t).Data
	private, err := keys.ParsePrivate(data[cluster.KeyPrivate])
	require.NoError(t, err)
	require.NotEqual(t, r.key.Public(), private.Public())
	require.Equal(t, private.Public().String(), string(data[cluster.KeyPublic]))
	require.Equal(t, bytes.Repeat([]byte{7}, keys.Size), data[cluster.KeySeed],
		"sessions go on with the gateways' keys")
	sub := &v1alpha1.Submariner{}
	require.NoError(t, r.c.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "submariner"}, sub))
	require.Equal(t, private.Public().String(), sub.Annotations[v1alpha1.PublicKeyAnnotation])
	require.NotContains(t, r.said.String(), string(private.Bytes()))
	require.Contains(t, r.said.String(), "✓ connections that are up again: 1")
}

func TestRotateKeyFails(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*rotating)
		want  string
		kept  bool
	}{
		"somebody else writes": {
			func(r *rotating) {
				r.refuse = apierrors.NewConflict(schema.GroupResource{}, "submariner-cluster-key",
					errors.New("changed"))
			},
			"Secret submariner-operator/submariner-cluster-key was changed at the same time, so nothing was done",
			true,
		},
		"no right to write": {
			func(r *rotating) {
				r.refuse = apierrors.NewForbidden(schema.GroupResource{}, "submariner-cluster-key", errors.New("no"))
			}, "writing Secret submariner-operator/submariner-cluster-key: ", true,
		},
		"a gateway that does not read it": {
			func(r *rotating) { r.deaf = true },
			"waiting for the gateway to publish the new key: out of time: the new key exists, and connections return when the gateway has read it",
			false,
		},
		"connections that stay down": {
			func(r *rotating) { r.broken = true },
			"waiting for connections: out of time: the new key is published, but these cables are not up: submariner-cable-east-1: see subctl show connections",
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotating(t)
			tc.spoil(r)
			require.ErrorContains(t, r.run(t), tc.want)
			require.Equal(t, tc.kept, bytes.Equal(r.key.Bytes(), r.secret(t).Data[cluster.KeyPrivate]))
		})
	}
}

// Whoever interrupts the wait is told what is done and what is not.
func TestRotateKeyInterrupted(t *testing.T) {
	for name, want := range map[string]string{
		"before the gateway has read it": "waiting for the gateway to publish the new key: interrupted: the new key exists, and connections return when the gateway has read it",
		"before connections are up":      "waiting for connections: interrupted: the new key is published, but these cables are not up: submariner-cable-east-1",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotating(t)
			r.deaf = strings.Contains(want, "to publish")
			r.broken = true
			found, err := r.subject.Check(t.Context())
			require.NoError(t, err)
			require.NoError(t, r.subject.Run(t.Context(), found))
			ctx, interrupt := context.WithCancel(t.Context())
			interrupt()
			require.ErrorContains(t, r.subject.Wait(ctx, found), want)
		})
	}
}

// What is in the way is said before anything is changed.
func TestRotateKeyRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		remove func(*testing.T, *rotating)
		want   string
	}{
		"not joined": {
			func(t *testing.T, r *rotating) {
				require.NoError(t,
					r.c.Delete(t.Context(), &v1alpha1.Submariner{ObjectMeta: clustertest.In("submariner")}))
			},
			"this cluster is not joined, so it has no key: specify a cluster that has joined with --context, or join this one with subctl join FILE",
		},
		"no key": {
			func(t *testing.T, r *rotating) {
				require.NoError(t, r.c.Delete(t.Context(), r.secret(t)))
			},
			"Secret submariner-operator/submariner-cluster-key does not exist: run subctl join again, which creates it with a new key",
		},
		"no right": {
			func(_ *testing.T, r *rotating) { r.denied = "update secrets" },
			"the cluster at https://west:6443 does not allow this user to update secrets in namespace submariner-operator: use a context with an administrator's rights",
		},
		"not ours": {func(t *testing.T, r *rotating) {
			sub := &v1alpha1.Submariner{}
			require.NoError(t,
				r.c.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "submariner"}, sub))
			sub.Labels = nil
			require.NoError(t, r.c.Update(t.Context(), sub))
		}, "this cluster was not joined by subctl: its gateways share one key, which subctl cannot replace"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotating(t)
			tc.remove(t, r)
			_, err := r.subject.Check(t.Context())
			require.EqualError(t, err, tc.want)
		})
	}
}
