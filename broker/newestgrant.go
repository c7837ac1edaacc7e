package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
	"subctl/internal/kube"
)

// This file finds the newest grant of a member. Once the administrator has renewed it, the service
// account has it as a whole. Until then, there is only what the cluster publishes: in each of its
// clustersets, the same grant discloses that clusterset.

// clustersOf returns the Cluster of a member in each of sets; a zero one where there is none.
func clustersOf(
	ctx context.Context,
	c client.Client,
	base string,
	sets []string,
	clusterID string,
) ([]submarinerv1.Cluster, error) {
	out := make([]submarinerv1.Cluster, len(sets))
	return out, kube.ForEach(sets, func(i int, set string) error {
		err := c.Get(ctx, client.ObjectKey{Namespace: NamespaceIn(base, set), Name: clusterID}, &out[i])
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the grant of cluster %s: %w", clusterID, err)
		}
		return nil
	})
}

// lastWord returns when the administrator has last signed something about a cluster, as far as the
// annotations of its service account and of its Clusters show it: a grant, an invitation, a
// revocation or a removal. It is 0 if they show nothing.
//
// What the administrator signs next must be later. So it is of no consequence that the clocks of
// the machines differ on which the administrator runs subctl: with a clock that is behind, a
// revocation would not cover a grant that was signed before, and a grant would be void because of
// an earlier removal.
func lastWord(clusterID string, administrator trust.PublicKey, annotations ...map[string]string) (at int64) {
	for _, a := range annotations {
		if g, err := administrator.Grant(trust.Bare(a[submarinerv1.GrantAnnotation])); err == nil &&
			g.Cluster == clusterID {
			at = max(at, g.Authority())
		}
		if r, err := administrator.Revocation(a[submarinerv1.RevocationAnnotation]); err == nil &&
			r.Cluster == clusterID {
			at = max(at, r.Serial)
		}
		if l, err := administrator.Leaving(a[submarinerv1.LeavingAnnotation]); err == nil &&
			l.Grant.Cluster == clusterID {
			at = max(at, l.Grant.Authority())
		}
	}
	return at
}

// annotationsOf returns the annotations of Clusters.
func annotationsOf(clusters []submarinerv1.Cluster) (out []map[string]string) {
	for i := range clusters {
		out = append(out, clusters[i].Annotations)
	}
	return out
}

// unprovenError is the error of a member whose grant cannot be found, though everything could be
// read.
type unprovenError struct{ error }

// Unwrap returns what is wrong.
func (e unprovenError) Unwrap() error { return e.error }

// newestGrant returns the newest grant of a member, whose service account is sa, with all its
// clustersets. sets are the clustersets of the broker, and clusters the Clusters of the member
// there. The error is an unprovenError, or what kept it from reading.
func newestGrant(
	ctx context.Context,
	c client.Client,
	sa *corev1.ServiceAccount,
	sets []string,
	clusters []submarinerv1.Cluster,
	change SetChange,
	administrator trust.PublicKey,
) (trust.Grant, error) {
	tokens := []string{sa.Annotations[submarinerv1.GrantAnnotation]}
	for i := range clusters {
		tokens = append(tokens, clusters[i].Annotations[submarinerv1.GrantAnnotation])
	}
	var newest trust.Grant
	var errs []error
	for _, token := range tokens {
		if token == "" {
			continue
		}
		g, err := administrator.Grant(token)
		switch later := g.Compare(newest); {
		case err != nil:
			errs = append(errs, err)
		case g.Cluster != change.Cluster || g.UID != "" && g.UID != sa.Annotations[ClusterUIDAnnotation]:
		case later > 0:
			newest = g
		case later == 0:
			newest.Sets, newest.Whole = slices.Concat(newest.Sets, g.Sets), newest.Whole || g.Whole
		}
	}
	for i, set := range sets { // a member may have hidden this grant while it was removed: see removeWithoutGrant
		r, err := administrator.Revocation(clusters[i].Annotations[submarinerv1.RevocationAnnotation])
		if err == nil && r.Cluster == change.Cluster && r.Set == set && r.Serial >= newest.Authority() {
			newest.Sets = slices.DeleteFunc(newest.Sets, func(s string) bool { return s == set })
		}
	}
	if newest.Serial == 0 {
		return newest, unprovenError{
			errors.Join(
				append(
					errs,
					fmt.Errorf(
						"cluster %s has published no valid grant yet: wait until it has joined (subctl show clusters), or check that the join file is of this broker",
						change.Cluster),
				)...),
		}
	}
	if newest.Whole {
		return newest, nil
	}
	return newest, checkPublished(ctx, c, sa.Namespace, sets, change, newest)
}

// checkPublished returns an error if a cluster has rights in a clusterset, and has not published
// its grant there: a new grant, without that clusterset, would take the cluster out of it.
func checkPublished(
	ctx context.Context,
	c client.Client,
	base string,
	sets []string,
	change SetChange,
	g trust.Grant,
) error {
	return kube.ForEach(sets, func(_ int, set string) error {
		if g.IsIn(set) || slices.Contains(change.Add, set) || slices.Contains(change.Remove, set) {
			return nil
		}
		has, err := hasRights(ctx, c, base, set, change.Cluster)
		if err == nil && has {
			err = unprovenError{
				fmt.Errorf(
					"cluster %s has rights in clusterset %s, and has not published its grant there: wait until it has, or repeat what was interrupted: subctl clusterset add %[2]s %[1]s, or remove",
					change.Cluster, set),
			}
		}
		return err
	})
}

// hasRights reports whether a cluster has the rights of a member in a clusterset.
func hasRights(ctx context.Context, c client.Client, base, set, clusterID string) (bool, error) {
	members, err := membersOf(ctx, c, NamespaceIn(base, set))
	if err != nil {
		return false, fmt.Errorf("reading the rights of cluster %s in clusterset %s: %w", clusterID, set, err)
	}
	return slices.Contains(members, clusterID), nil
}

// grantPatience is the time that a member has to publish its grant after it got back its place.
// Members read a clusterset again within 5 s, and publish at once.
const grantPatience = 20 * time.Second

// awaitGrant gives a member without rights in any clusterset its place in those to which it is
// added, and returns the grant that it publishes there. The clusterset of such a member was deleted
// by hand, and its grant with it. A member that publishes no grant in time loses the place again.
// If it has rights somewhere, awaitGrant changes nothing, and returns the error why: the member may
// publish its grant there.
func (r Reservation) awaitGrant(
	ctx context.Context,
	c client.Client,
	sa *corev1.ServiceAccount,
	sets []string,
	change SetChange,
	administrator trust.PublicKey,
	why error,
) (grant trust.Grant, err error) {
	err = kube.ForEach(sets, func(_ int, set string) error {
		has, err := hasRights(ctx, c, sa.Namespace, set, change.Cluster)
		if has {
			err = why
		}
		return err
	})
	if err != nil {
		return grant, err
	}
	defer func() {
		if err != nil {
			for _, set := range change.Add {
				err = errors.Join(err, expel(context.WithoutCancel(ctx), c, sa.Namespace, set, change.Cluster))
			}
		}
	}()
	for _, set := range change.Add {
		if err := r.add(ctx, c, sa, set, change.Cluster); err != nil {
			return grant, fmt.Errorf("adding cluster %s to clusterset %s: %w", change.Cluster, set, err)
		}
	}
	err = wait.PollUntilContextTimeout(
		ctx,
		time.Second/2,
		grantPatience,
		true,
		func(ctx context.Context) (bool, error) {
			clusters, err := clustersOf(ctx, c, sa.Namespace, change.Add, change.Cluster)
			if err != nil {
				return false, err
			}
			grant, err = newestGrant(ctx, c, sa, change.Add, clusters, change, administrator)
			if errors.As(err, &unprovenError{}) {
				return false, nil
			}
			return err == nil, err
		},
	)
	if err == nil {
		return grant, nil
	}
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = unprovenError{
			fmt.Errorf(
				"cluster %s was in no clusterset, and has published no valid grant within %s: if the clusterset in which it was has been deleted, create it again (subctl clusterset create), and add the cluster to that one first; "+
					"otherwise check that its gateways run (subctl show gateways), or join it again (subctl join)",
				change.Cluster,
				grantPatience,
			),
		}
	}
	return trust.Grant{}, err
}
