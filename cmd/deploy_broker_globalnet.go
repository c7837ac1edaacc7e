package cmd

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/globalnet"
	"subctl/internal/progress"
	"subctl/internal/words"
)

// checkGlobalnet returns the mistakes in the flags of globalnet. Whether the range has room for
// clusters of the default size depends on the settings of the broker, if there is one: see
// planGlobalnet.
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

// planGlobalnet chooses the settings of globalnet: those of the flags, else those of the broker,
// else the defaults. It returns an error if clusters cannot follow the change.
func (o *deployBrokerOptions) planGlobalnet(ctx context.Context, c client.Client, state broker.State) error {
	cidr := o.globalnetCIDR
	size := o.globalnetSize
	enabled := o.globalnet
	if b := state.Broker; b != nil && b.Spec.GlobalnetEnabled {
		enabled = enabled || !o.flags.Changed("globalnet")
		if !o.flags.Changed("globalnet-cidr-range") {
			cidr = b.Spec.GlobalnetCIDRRange
		}
		if !o.flags.Changed("globalnet-cluster-size") {
			size = broker.GlobalnetClusterSize(b)
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
	had := state.Broker != nil && state.Broker.Spec.GlobalnetEnabled
	if len(state.Members) > 0 && (!had || o.flags.Changed("globalnet")) {
		o.withoutGlobal = state.WithoutGlobal()
	}
	if had && o.render.Globalnet.Range.String() == state.Broker.Spec.GlobalnetCIDRRange {
		return nil
	}
	err = o.checkNodes(ctx, c)
	if state.Broker == nil || len(state.Members) == 0 {
		return err
	}
	return errors.Join(err, o.checkRange(ctx, c))
}

// warnOfGlobalnet tells what was not checked, and what members without a global network must do.
func (o *deployBrokerOptions) warnOfGlobalnet(report *progress.Reporter) {
	if o.unreadNodes {
		report.Warn(
			"globalnet: the user of this context may not list nodes, so nothing shows whether the range %v contains addresses of nodes of the broker's cluster",
			o.render.Globalnet.Range)
	}
	if len(o.withoutGlobal) > 0 {
		report.Warn(
			"globalnet: these members have no global network, and stay connected by the addresses of their own networks: %s. Each gets one when somebody who administers it runs: "+
				"subctl join FILE --globalnet --force. Other clusters then reach its exported Services by global addresses, and no pods and Services by their own (docs/globalnet.md)",
			words.List(o.withoutGlobal),
		)
	}
}
