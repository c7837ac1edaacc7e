package broker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

// revokeEast revokes cluster east.
func revokeEast(ctx context.Context, c client.Client, now time.Time) error {
	return broker.Revoke(ctx, c, "base", formerSets, "east", brokertest.Administrator(), now)
}

// removeEast removes cluster east from the clusterset a.
func removeEast(ctx context.Context, c client.Client, now time.Time) error {
	change := broker.SetChange{Cluster: "east", Remove: []string{"a"}}
	_, err := broker.ChangeSets(ctx, c, "base", formerSets, change, broker.Reservation{}, brokertest.Administrator(),
		now)
	return err
}

// A cluster loses its rights even if the proof that it was removed cannot be published in the
// clusterset a. The proof is published when that becomes possible, and the command ends in any
// case.
func TestHostileClusterKeepsItsProofOut(t *testing.T) {
	invited := binding(broker.InviteeName("east"), "a")
	squat := func(ctx context.Context, c client.Client) {
		o := brokertest.Cluster("base-a", "east")
		brokertest.Annotate(o, submarinerv1.GrantAnnotation, "x")
		_ = c.Create(ctx, o)
	}
	refusal := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "clusters"}, "east", errors.New(why))
	}
	for name, test := range map[string]struct {
		// before a Cluster is created in a; at is the time since the command began
		before func(ctx context.Context, c client.Client, at time.Duration) error
		after  func(ctx context.Context, c client.Client, at time.Duration) error // after that; nil: nothing happens
		ends   time.Duration
		want   string
	}{
		"it creates a Cluster with its invitation": {
			ends: time.Second,
			before: func(ctx context.Context, c client.Client, _ time.Duration) error {
				if c.Get(ctx, client.ObjectKeyFromObject(invited), &rbacv1.RoleBinding{}) == nil {
					squat(ctx, c)
				}
				return nil
			},
		},
		"the API server takes a second to know that it has no rights": {
			ends: 2 * time.Second,
			before: func(ctx context.Context, c client.Client, at time.Duration) error {
				if at < time.Second {
					squat(ctx, c)
				}
				return nil
			},
		},
		"it deletes the proof, for as long as the API server lets it": {
			ends: time.Second, before: func(context.Context, client.Client, time.Duration) error { return nil },
			after: func(ctx context.Context, c client.Client, at time.Duration) error {
				if at < time.Second {
					return c.Delete(ctx, brokertest.Cluster("base-a", "east"))
				}
				return nil
			},
		},
		"somebody else creates a Cluster for good": {
			ends: 10 * time.Second,
			want: "already exists",
			before: func(ctx context.Context, c client.Client, _ time.Duration) error {
				squat(ctx, c)
				return nil
			},
		},
		"the quota is full for a while": {
			ends: 6 * time.Second,
			before: func(_ context.Context, _ client.Client, at time.Duration) error {
				if at < 5*time.Second {
					return refusal("exceeded quota: members")
				}
				return nil
			},
		},
		"the quota is full": {
			ends: 10 * time.Second,
			want: "exceeded quota",
			before: func(context.Context, client.Client, time.Duration) error {
				return refusal("exceeded quota: members")
			},
		},
		"a webhook denies it": {
			want:   "no Clusters here",
			before: func(context.Context, client.Client, time.Duration) error { return refusal("no Clusters here") },
		},
	} {
		for command, run := range map[string]func(context.Context, client.Client, time.Time) error{
			"revoke": revokeEast,
			"remove": removeEast,
		} {
			t.Run(command+": "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := formerBroker(
						t,
						append(
							hidden(t),
							invited.DeepCopy(),
							&corev1.ServiceAccount{
								ObjectMeta: metav1.ObjectMeta{Namespace: "base", Name: broker.InviteeName("east")},
							},
						)...)
					began := time.Now()
					attempts := 0
					err := run(t.Context(), interceptor.NewClient(c, interceptor.Funcs{
						Create: func(
							ctx context.Context,
							c client.WithWatch,
							o client.Object,
							opts ...client.CreateOption,
						) error {
							_, isCluster := o.(*submarinerv1.Cluster)
							inA := isCluster && o.GetNamespace() == "base-a"
							if inA {
								if attempts++; attempts > 1000 {
									return errors.New("the command does not end")
								}
								if err := test.before(ctx, c, time.Since(began)); err != nil {
									return err
								}
							}
							if err := c.Create(ctx, o, opts...); err != nil || !inA || test.after == nil {
								return err
							}
							return test.after(ctx, c, time.Since(began))
						},
					}), time.Now())
					require.InDelta(t, test.ends, time.Since(began), float64(time.Second))
					for _, b := range []*rbacv1.RoleBinding{
						invited,
						binding("cluster-east-"+broker.MemberRoleName, "a"),
					} {
						require.True(
							t,
							apierrors.IsNotFound(
								c.Get(t.Context(), client.ObjectKeyFromObject(b), &rbacv1.RoleBinding{})),
							"its rights: %s",
							b.Name,
						)
					}
					if command == "revoke" {
						for _, account := range []string{broker.MemberName("east"), broker.InviteeName("east")} {
							require.True(
								t,
								apierrors.IsNotFound(
									c.Get(t.Context(), client.ObjectKey{Namespace: "base", Name: account},
										&corev1.ServiceAccount{}),
								),
								account,
							)
						}
					}
					if test.want != "" {
						require.ErrorContains(t, err, "publishing in namespace base-a that cluster east was removed: ")
						require.ErrorContains(t, err, test.want)
						return
					}
					require.NoError(t, err)
					require.Contains(t, shown(t, c, "east"), "a")
				})
			})
		}
	}
}

// Two administrators remove a cluster at the same time, and one publishes a revocation while the
// other ends the rights of the cluster. The one that covers the other remains, whoever is the last.
func TestTwoAdministratorsRemoveACluster(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		run   func(context.Context, client.Client, time.Time) error
		other trust.Revocation
		spoil func(c *submarinerv1.Cluster) // how a member changes what the other publishes
		want  trust.Revocation
	}{
		"removed, and then revoked": {
			run:   removeEast,
			other: trust.Revocation{Serial: 5},
			want:  trust.Revocation{Serial: 5},
		},
		"removed twice": {
			run:   removeEast,
			other: trust.Revocation{Set: "a", Serial: 5},
			want:  trust.Revocation{Set: "a", Serial: 5},
		},
		"removed, and revoked long ago": {
			run:   removeEast,
			other: trust.Revocation{Serial: -5},
			want:  trust.Revocation{Set: "a"},
		},
		"revoked, and then removed": {
			run:   revokeEast,
			other: trust.Revocation{Set: "a", Serial: 5},
			want:  trust.Revocation{},
		},
		"revoked twice": {
			run:   revokeEast,
			other: trust.Revocation{Serial: 5},
			want:  trust.Revocation{Serial: 5},
		},
		"another cluster's": {
			run:   revokeEast,
			other: trust.Revocation{Cluster: "west", Serial: 5},
			want:  trust.Revocation{},
		},
		"the member has signed it": {
			run:   revokeEast,
			other: trust.Revocation{Serial: 5},
			spoil: signedBy(brokertest.Key("east")),
			want:  trust.Revocation{},
		},
		"the broker would delete it": {
			run:   revokeEast,
			other: trust.Revocation{Serial: 5},
			spoil: withLostOwner,
			want:  trust.Revocation{},
		},
		"it has contents of the member": {
			run:   revokeEast,
			other: trust.Revocation{Serial: 5},
			spoil: func(c *submarinerv1.Cluster) { c.Spec.ClusterCIDR = []string{"10.0.0.0/8"} },
			want:  trust.Revocation{},
		},
		"it has a signature of a member": {
			run:   revokeEast,
			other: trust.Revocation{Serial: 5},
			spoil: func(c *submarinerv1.Cluster) { brokertest.Annotate(c, submarinerv1.SignatureAnnotation, "x") },
			want:  trust.Revocation{},
		},
		"its label is of another cluster": {
			run:   revokeEast,
			other: trust.Revocation{Serial: 5},
			spoil: func(c *submarinerv1.Cluster) { c.Labels[submarinerv1.ClusterIDLabel] = "west" },
			want:  trust.Revocation{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := formerBroker(t, hidden(t)...)
			published := func(r trust.Revocation) *submarinerv1.Cluster {
				if r.Cluster == "" {
					r.Cluster = "east"
				}
				r.Serial += now.UnixMilli()
				token, err := brokertest.Administrator().SignRevocation(r)
				require.NoError(t, err)
				return exchange.Revoked("base-a", "east", token)
			}
			other := published(test.other)
			if test.spoil != nil {
				test.spoil(other)
			}
			won := false
			err := test.run(t.Context(), interceptor.NewClient(c, interceptor.Funcs{
				Delete: func(
					ctx context.Context,
					c client.WithWatch,
					o client.Object,
					opts ...client.DeleteOption,
				) error {
					if _, ok := o.(*rbacv1.RoleBinding); ok && o.GetNamespace() == "base-a" && !won {
						won = true
						if err := errors.Join(c.Delete(ctx, exchange.Revoked("base-a", "east", "")),
							c.Create(ctx, other)); err != nil {
							return err
						}
					}
					return c.Delete(ctx, o, opts...)
				},
			}), now)
			require.NoError(t, err)
			require.True(t, won)
			got := &submarinerv1.Cluster{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "base-a", Name: "east"}, got))
			require.Empty(t, got.OwnerReferences)
			require.Equal(t, published(test.want).Annotations, got.Annotations)
		})
	}
}

// signedBy replaces a revocation by one that key has signed.
func signedBy(key trust.Key) func(c *submarinerv1.Cluster) {
	return func(c *submarinerv1.Cluster) {
		token, _ := key.SignRevocation(trust.Revocation{Cluster: "east", Serial: time.Now().Add(time.Hour).UnixMilli()})
		brokertest.Annotate(c, submarinerv1.RevocationAnnotation, token)
	}
}

// withLostOwner gives a Cluster an owner that does not exist.
func withLostOwner(c *submarinerv1.Cluster) {
	c.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ServiceAccount", Name: "cluster-east", UID: "nobody"},
	}
}
