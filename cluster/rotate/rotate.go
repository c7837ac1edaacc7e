// Package rotate replaces the key pair of a cluster, and waits until its connections use
// the new one. Package keys derives the keys of cables from it.
package rotate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable/keys"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/progress"
	"subctl/internal/wake"
)

// Operation replaces the key pair of a joined cluster. Every pair of clusters derives new
// secrets from it. The old private key is deleted.
//
// The only state of a rotation is the key pair. An interrupted rotation is complete once
// the gateway has read the Secret; repeating it creates another key pair.
type Operation struct {
	Cluster cluster.Side
	Report  *progress.Reporter
	// Timeout limits the wait for the gateway and its connections. The kubelet updates the
	// mounted files of a changed Secret within two minutes; Run tries to shorten that.
	Timeout time.Duration
}

// settle is the age that the new key must have before a report of the gateway counts: the
// time between two reports.
const settle = 5 * time.Second

// Plan describes the rotation of the key of one cluster.
type Plan struct {
	submariner *v1alpha1.Submariner
	secret     *corev1.Secret
	connected  []string // cable names of the connections that are up
}

// Lines returns the actions of Run, one per line.
func (r *Plan) Lines() []string {
	return []string{
		fmt.Sprintf("update Secret %s/%s: %s, %s", cluster.Namespace, cluster.ClusterKeySecret, cluster.KeyPrivate,
			cluster.KeyPublic),
		fmt.Sprintf("wait until the gateway of cluster %q has published the new public key",
			r.submariner.Spec.ClusterID),
		fmt.Sprintf("wait until its connections are up: %d", len(r.connected)),
	}
}

// Check returns a plan, or an error if the key cannot be rotated. It changes nothing.
func (k *Operation) Check(ctx context.Context) (*Plan, error) {
	missing, err := kube.Denied(ctx, k.Cluster, []kube.Right{
		kube.NewRight("get", "", "secrets", cluster.Namespace),
		kube.NewRight("update", "", "secrets", cluster.Namespace),
		kube.NewRight("list", "", "pods", cluster.Namespace),
		kube.NewRight("get", "submariner.io", "clusters", cluster.Namespace),
		kube.NewRight("list", "submariner.io", "gateways", cluster.Namespace),
		kube.NewRight("get", "submariner.io", "submariners", cluster.Namespace),
		kube.NewRight("patch", "submariner.io", "submariners", cluster.Namespace),
	})
	if err != nil {
		return nil, err
	}
	if err := kube.DeniedError("the cluster at "+k.Cluster.URL, missing,
		"use a context with an administrator's rights"); err != nil {
		return nil, err
	}
	r := &Plan{}
	if r.submariner, err = kube.Optional(ctx, k.Cluster, &v1alpha1.Submariner{}, client.ObjectKey{
		Namespace: cluster.Namespace,
		Name:      v1alpha1.SubmarinerName,
	}); err != nil {
		return nil, err
	}
	switch {
	case r.submariner == nil:
		return nil, errors.New(
			"this cluster is not joined, so it has no key: specify a cluster that has joined with --context, or join this one with subctl join FILE")
	case !cluster.IsOurs(r.submariner.Labels):
		return nil, errors.New(
			"this cluster was not joined by subctl: its gateways share one key, which subctl cannot replace")
	case r.submariner.DeletionTimestamp != nil:
		return nil, errors.New("this cluster is being uninstalled: finish with subctl uninstall")
	}
	if r.secret, err = kube.Optional(ctx, k.Cluster, &corev1.Secret{}, client.ObjectKey{
		Namespace: cluster.Namespace,
		Name:      cluster.ClusterKeySecret,
	}); err != nil {
		return nil, err
	}
	if r.secret == nil {
		return nil, fmt.Errorf("Secret %s/%s does not exist: run subctl join again, which creates it with a new key",
			cluster.Namespace, cluster.ClusterKeySecret)
	}
	active, err := k.active(ctx)
	if err != nil {
		return nil, err
	}
	if len(active) == 0 {
		return nil, errors.New("no gateway is active to publish a new key: see subctl show gateways")
	}
	r.connected = connectedCables(active)
	return r, nil
}

// Run creates the new key pair.
func (k *Operation) Run(ctx context.Context, r *Plan) error {
	k.Report.Step("creating a new key for cluster %q", r.submariner.Spec.ClusterID)
	if err := k.replace(ctx, r); err != nil {
		return err
	}
	k.Report.Done("Secret %s/%s has a new key; the old key is deleted", cluster.Namespace, cluster.ClusterKeySecret)
	return nil
}

// Wait waits until the key pair that Run has created is in use.
func (k *Operation) Wait(ctx context.Context, r *Plan) error {
	id := r.submariner.Spec.ClusterID
	public := r.submariner.Annotations[v1alpha1.PublicKeyAnnotation]
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	k.Report.Step("waiting for the gateway to publish %s", public)
	if err := k.published(ctx, id, public); err != nil {
		return err
	}
	k.Report.Done("the gateway has published the new public key")
	k.Report.Step("waiting for %d connections", len(r.connected))
	if err := k.reconnected(ctx, r.connected); err != nil {
		return err
	}
	k.Report.Done("connections that are up again: %d", len(r.connected))
	return nil
}

// replace replaces the key pair, unless the Secret has changed since it was read.
func (k *Operation) replace(ctx context.Context, r *Plan) error {
	key, err := keys.Generate()
	if err != nil {
		return err
	}
	public := key.Public().String()
	changed := r.secret.DeepCopy() // has the resource version, so that no other change is lost
	if changed.Data == nil {
		changed.Data = map[string][]byte{}
	}
	changed.Data[cluster.KeyPrivate] = key.Bytes()
	changed.Data[cluster.KeyPublic] = []byte(public)
	err = k.Cluster.Update(ctx, changed, client.FieldOwner(kube.FieldOwner))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("Secret %s/%s was changed at the same time, so nothing was done: inspect it and try again",
			cluster.Namespace, cluster.ClusterKeySecret)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", cluster.Namespace, cluster.ClusterKeySecret, err)
	}
	was := r.submariner.DeepCopy()
	metav1.SetMetaDataAnnotation(&r.submariner.ObjectMeta, v1alpha1.PublicKeyAnnotation, public)
	if err := k.Cluster.Patch(ctx, r.submariner, client.MergeFrom(was),
		client.FieldOwner(kube.FieldOwner)); err != nil {
		return fmt.Errorf("writing the new public key to the Submariner object: %w", err)
	}
	err = cluster.RereadSecrets(ctx, k.Cluster, time.Now())
	if apierrors.IsForbidden(err) {
		k.Report.Warn(cluster.NoReread, "key")
		return nil
	}
	return err
}

// published waits until the Cluster object has the new public key.
func (k *Operation) published(ctx context.Context, id, public string) error {
	for {
		c, err := kube.Optional(ctx, k.Cluster, &submarinerv1.Cluster{},
			client.ObjectKey{Namespace: cluster.Namespace, Name: id})
		if err == nil && c != nil && c.Spec.PublicKey == public {
			return nil
		}
		if wake.After(ctx, cluster.Poll) != nil {
			return fmt.Errorf(
				"waiting for the gateway to publish the new key: %w: the new key exists, and connections return when "+
					"the gateway has read it: see kubectl logs -n %s -l app=%s",
				cluster.Interrupted(ctx),
				cluster.Namespace,
				cluster.GatewayName,
			)
		}
	}
}

// reconnected waits until the cables are up, according to reports that were written after
// the new key was in use.
func (k *Operation) reconnected(ctx context.Context, cables []string) error {
	since := map[string]time.Time{} // by gateway, by the clock of the gateway
	var down []string
	for {
		active, err := k.active(ctx)
		if err == nil && len(active) > 0 {
			settled := slices.DeleteFunc(active, func(g submarinerv1.Gateway) bool {
				at, _ := g.ReportedAt() // the zero time if there is none
				if _, seen := since[g.Name]; !seen {
					since[g.Name] = at
				}
				return at.Sub(since[g.Name]) < settle
			})
			up := connectedCables(settled)
			down = slices.DeleteFunc(slices.Clone(cables), func(c string) bool { return slices.Contains(up, c) })
			if len(down) == 0 {
				return nil
			}
		}
		if wake.After(ctx, cluster.Poll) != nil {
			return fmt.Errorf(
				"waiting for connections: %w: the new key is published, but these cables are not up: %s: see subctl show connections",
				cluster.Interrupted(ctx), strings.Join(down, ", "))
		}
	}
}

func (k *Operation) active(ctx context.Context) ([]submarinerv1.Gateway, error) {
	list := &submarinerv1.GatewayList{}
	if err := k.Cluster.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing gateways: %w", err)
	}
	return slices.DeleteFunc(list.Items,
		func(g submarinerv1.Gateway) bool { return g.Status.HAStatus != submarinerv1.HAStatusActive }), nil
}

// connectedCables returns the cable names of the connections that are up, sorted.
func connectedCables(gateways []submarinerv1.Gateway) []string {
	var out []string
	for _, g := range gateways {
		for _, c := range g.Status.Connections {
			if c.Status == submarinerv1.Connected {
				out = append(out, c.Endpoint.CableName)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
