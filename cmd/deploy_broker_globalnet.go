package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/globalnet"
	"subctl/internal/progress"
	"subctl/internal/words"
)

// checkGlobalnet returns the mistakes in the flags of globalnet. Whether the range has room for clusters of the default size depends on
// the settings of the broker, if there is one: see planGlobalnet.
func (o *deployBrokerOptions) checkGlobalnet() error {
	var errs []error
	if !o.globalnet {
		for _, name := range []string{"globalnet-cidr-range", "globalnet-cluster-size"} {
			if o.flags.Changed(name) {
				errs = append(errs, fmt.Errorf("--%s requires --globalnet", name))
			}
		}
		return errors.Join(errs...)
	}
	info, err := globalnet.Parse(o.globalnetCIDR, o.globalnetSize)
	if err != nil && !o.flags.Changed("globalnet-cluster-size") {
		_, err = globalnet.Parse(o.globalnetCIDR, globalnet.MinSize)
	}
	o.render.Globalnet = info
	return err
}

// planGlobalnet chooses the settings of globalnet: those of the flags, else those of the broker, else the defaults. It
// returns an error if clusters cannot follow the change.
func (o *deployBrokerOptions) planGlobalnet(ctx context.Context, c client.Client, state broker.State) error {
	cidr, size, enabled := o.globalnetCIDR, o.globalnetSize, o.globalnet
	if b := state.Broker; b != nil && b.Spec.GlobalnetEnabled {
		enabled = enabled || !o.flags.Changed("globalnet")
		if !o.flags.Changed("globalnet-cidr-range") {
			cidr = b.Spec.GlobalnetCIDRRange
		}
		if !o.flags.Changed("globalnet-cluster-size") {
			size = b.Spec.DefaultGlobalnetClusterSize
		}
	}
	o.render.Globalnet = globalnet.Info{}
	if !enabled {
		return nil
	}
	var err error
	if o.render.Globalnet, err = globalnet.Parse(cidr, size); err != nil {
		return err
	}
	if state.Broker == nil || len(state.Members) == 0 {
		return nil
	}
	if !state.Broker.Spec.GlobalnetEnabled || o.flags.Changed("globalnet") {
		o.withoutGlobal = state.WithoutGlobal()
	}
	if state.Broker.Spec.GlobalnetEnabled && o.render.Globalnet.Range.String() == state.Broker.Spec.GlobalnetCIDRRange {
		return nil
	}
	return o.checkRange(ctx, c)
}

// checkRange returns an error if the range of globalnet overlaps networks that members use themselves: they could not reach
// what is allocated there.
func (o *deployBrokerOptions) checkRange(ctx context.Context, c client.Client) error {
	sets, err := broker.SetNames(ctx, c, o.render.Namespace)
	if err != nil {
		return err
	}
	var errs []error
	seen := map[string]bool{}
	for _, set := range sets {
		clusters := &submarinerv1.ClusterList{}
		if err := c.List(ctx, clusters, client.InNamespace(broker.NamespaceIn(o.render.Namespace, set))); err != nil {
			return fmt.Errorf("reading the networks of the members of clusterset %s: %w", set, err)
		}
		for _, member := range clusters.Items {
			if exchange.IsRemoved(&member) || seen[member.Name] {
				continue
			}
			seen[member.Name] = true
			for _, text := range slices.Concat(member.Spec.ServiceCIDR, member.Spec.ClusterCIDR) {
				if n, err := netip.ParsePrefix(text); err == nil && n.Overlaps(o.render.Globalnet.Range) {
					errs = append(errs, fmt.Errorf("globalnet range %v overlaps %v, a network of cluster %q: use another range", o.render.Globalnet.Range, n, member.Name))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// warnOfGlobalnet tells what members without a global network must do.
func (o *deployBrokerOptions) warnOfGlobalnet(report *progress.Reporter) {
	if len(o.withoutGlobal) > 0 {
		report.Warn("globalnet: these members have no global network, and stay connected by the addresses of their own networks: %s. Each gets one when somebody who administers it runs: "+
			"subctl join FILE --globalnet --force. Other clusters then reach its exported Services by global addresses, and no pods and Services by their own (docs/globalnet.md)", words.List(o.withoutGlobal))
	}
}
