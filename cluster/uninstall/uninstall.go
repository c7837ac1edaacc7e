// Package uninstall removes from a cluster what join installed, after the agents have
// cleaned their nodes, and removes the cluster from its broker. It deletes nothing that
// join did not make.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/progress"
	"subctl/internal/proxy"
	"subctl/internal/words"
)

// Operation removes a cluster from its clustersets, and deletes everything that join
// created in the cluster. Deleting the Submariner object makes the agents clean their
// nodes; the agents are deleted after they have reported that their nodes are clean. Every
// step may be repeated.
type Operation struct {
	Cluster cluster.Side
	Report  *progress.Reporter
	// Connect returns a client for the broker.
	Connect func(context.Context, *rest.Config) (client.Client, error)
	// Proxy returns how this machine reaches an address of a broker; nil: directly.
	Proxy func(address string) proxy.Settings
	// Force lists the obstacles in spite of which Run continues.
	Force []Obstacle
	// Timeout limits the wait for the nodes, and then the wait for the namespace.
	Timeout time.Duration
}

// Obstacle is a reason for which a removal stops, unless the user forces it to continue.
type Obstacle string

// The obstacles, as the flag --force names them. Policies is for the caller to check: Run deletes
// the policies of the cluster.
const (
	Policies Obstacle = "policies" // other clusters need the cable policies of this cluster
	Nodes    Obstacle = "nodes"    // nodes cannot be cleaned
	Broker   Obstacle = "broker"   // the broker cannot be reached, or keeps objects of this cluster
)

// Obstacles returns those of uninstall.
func Obstacles() []Obstacle { return []Obstacle{Policies, Nodes, Broker} }

// forced reports whether Run continues in spite of an obstacle.
func (u *Operation) forced(o Obstacle) bool { return slices.Contains(u.Force, o) }

// Run removes r.
func (u *Operation) Run(ctx context.Context, r *Remains) error {
	dirty, err := u.run(ctx, r)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // it lists what is not done
		return err
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: run the same command again to finish", cluster.Interrupted(ctx))
	}
	if err != nil {
		return err
	}
	if len(dirty) > 0 && !u.forced(Nodes) {
		return fmt.Errorf("nodes that the agents could not clean may still have devices, routes and rules: "+
			"restart %s; or join again, and uninstall while all nodes are Ready", words.List(dirty))
	}
	return nil
}

func (u *Operation) run(ctx context.Context, r *Remains) (dirty []string, err error) {
	if sub := r.Submariner; sub != nil {
		hub, err := u.broker(ctx, sub)
		if err != nil {
			return nil, err
		}
		if err := u.clusterDNS(ctx, r); err != nil {
			return nil, err
		}
		if hub != nil { // otherwise nobody would learn of it
			if err := u.withdraw(ctx, sub); err != nil {
				return nil, err
			}
		}
		u.Report.Step("waiting for the agents to clean the nodes")
		if err := client.IgnoreNotFound(u.Cluster.Delete(ctx, sub)); err != nil {
			return nil, fmt.Errorf("deleting the Submariner object: %w", err)
		}
		if dirty, err = u.clean(ctx, r); err != nil {
			return nil, err
		}
		if err := u.leave(ctx, hub, sub); err != nil {
			return nil, err
		}
	} else if err := u.clusterDNS(ctx, r); err != nil {
		return nil, err
	}
	return dirty, u.remove(ctx, r, dirty)
}

// broker connects to the broker with the cluster's own credentials, before anything is
// changed. It returns nil if the broker does not accept the credentials any more, or if it
// cannot be reached and this is forced.
func (u *Operation) broker(ctx context.Context, sub *v1alpha1.Submariner) (client.Client, error) {
	where := sub.Spec.BrokerK8sApiServer
	c, err := u.connect(ctx, sub)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, err
	case apierrors.IsUnauthorized(err):
		u.Report.Warn("the broker at %s no longer knows this cluster", where)
		u.unrevoked(sub, "only a member can revoke its own grant, unless it was revoked before", "--force")
		return nil, nil
	case u.forced(Broker):
		u.Report.Warn("the broker at %s keeps its objects of cluster %q: %v", where, sub.Spec.ClusterID, err)
		u.unrevoked(sub, "the broker was not reached")
		return nil, nil
	default:
		return nil, fmt.Errorf(
			"removing this cluster from the broker at %s: %w: nothing was changed; "+
				"try again when the broker can be reached, or leave the objects of this cluster there with --force=%s",
			where,
			err,
			Broker,
		)
	}
}

func (u *Operation) connect(ctx context.Context, sub *v1alpha1.Submariner) (client.Client, error) {
	creds := &corev1.Secret{}
	if err := u.Cluster.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.BrokerSecretName(sub)},
		creds); err != nil {
		return nil, fmt.Errorf("reading the credentials: %w", err)
	}
	more, err := broker.DecodeCA(sub.Spec.BrokerK8sCA)
	if err != nil {
		return nil, err
	}
	file := &broker.JoinFile{
		BrokerURL: "https://" + sub.Spec.BrokerK8sApiServer, TLSServerName: sub.Spec.BrokerK8sTLSServerName,
		CA:    broker.JoinCAs(creds.Data[corev1.ServiceAccountRootCAKey], more),
		Token: creds.Data[corev1.ServiceAccountTokenKey],
	}
	if u.Proxy != nil {
		file.Proxy = u.Proxy(file.BrokerURL)
	}
	return u.Connect(ctx, file.RESTConfig(sub.Spec.BrokerK8sInsecure))
}

// free removes the finalizer of the Submariner object.
func (u *Operation) free(ctx context.Context) error {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName}
	sub, err := kube.Optional(ctx, u.Cluster, &v1alpha1.Submariner{}, key)
	if err != nil || sub == nil {
		return err
	}
	was := sub.DeepCopy()
	sub.Finalizers = slices.DeleteFunc(sub.Finalizers, func(f string) bool { return f == v1alpha1.UninstallFinalizer })
	if err := u.Cluster.Patch(ctx, sub, client.MergeFrom(was),
		client.FieldOwner(kube.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of the Submariner object: %w", err)
	}
	return nil
}
