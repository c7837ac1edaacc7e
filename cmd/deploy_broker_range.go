package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/exchange"
)

// This file compares the range of globalnet with addresses that are in use. Packets to these
// addresses would be lost in clusters that reach a global network at them.

// checkNodes returns an error if the range contains addresses of nodes of the broker's cluster. Who
// may not read nodes is told that they were not compared.
func (o *deployBrokerOptions) checkNodes(ctx context.Context, c client.Client) error {
	nodes := &corev1.NodeList{}
	switch err := c.List(ctx, nodes); {
	case apierrors.IsForbidden(err):
		o.unreadNodes = true
		return nil
	case err != nil:
		return fmt.Errorf("reading the addresses of the nodes of the broker's cluster: %w", err)
	}
	var errs []error
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			errs = append(errs,
				o.checkAddress(a.Address, fmt.Sprintf("the %s of node %s of the broker's cluster", a.Type, n.Name)))
		}
	}
	return errors.Join(errs...)
}

// checkAddress returns an error if the range contains an address.
func (o *deployBrokerOptions) checkAddress(text, what string) error {
	ip, err := netip.ParseAddr(text)
	if err != nil || !o.render.Globalnet.Range.Contains(ip) {
		return nil
	}
	return fmt.Errorf("globalnet range %v contains %v, %s: use another range", o.render.Globalnet.Range, ip, what)
}

// checkRange returns an error if the range overlaps networks that members use themselves, or
// contains addresses of their gateways: they could not reach what is allocated there.
func (o *deployBrokerOptions) checkRange(ctx context.Context, c client.Client) error {
	sets, err := broker.SetNames(ctx, c, o.render.Namespace)
	if err != nil {
		return err
	}
	var errs []error
	seen := map[string]bool{}
	for _, set := range sets {
		ns := client.InNamespace(broker.NamespaceIn(o.render.Namespace, set))
		clusters := &submarinerv1.ClusterList{}
		endpoints := &submarinerv1.EndpointList{}
		if err := errors.Join(c.List(ctx, clusters, ns), c.List(ctx, endpoints, ns)); err != nil {
			return fmt.Errorf("reading the networks of the members of clusterset %s: %w", set, err)
		}
		for _, member := range clusters.Items {
			if exchange.IsRemoved(&member) || seen[member.Name] {
				continue
			}
			seen[member.Name] = true
			for _, text := range slices.Concat(member.Spec.ServiceCIDR, member.Spec.ClusterCIDR) {
				if n, err := netip.ParsePrefix(text); err == nil && n.Overlaps(o.render.Globalnet.Range) {
					errs = append(
						errs,
						fmt.Errorf("globalnet range %v overlaps %v, a network of cluster %q: use another range",
							o.render.Globalnet.Range, n, member.Name),
					)
				}
			}
		}
		for _, e := range endpoints.Items {
			key := e.Spec.ClusterID + "/" + e.Spec.Hostname
			if seen[key] {
				continue
			}
			seen[key] = true
			for _, text := range []string{e.Spec.PrivateIP, e.Spec.PublicIP} {
				errs = append(
					errs,
					o.checkAddress(text,
						fmt.Sprintf("an address of gateway %.100q of cluster %q", e.Spec.Hostname, e.Spec.ClusterID)),
				)
			}
		}
	}
	return errors.Join(errs...)
}
