package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/policy/catalog"
)

// addSigning declares the flag of commands that sign policies on a broker.
func (s *policyOptions) addSigning(c *cobra.Command) {
	c.Flags().StringVar(
		&s.file,
		"broker-info",
		"",
		"on a broker: join file with the administrator's key, which signs the policy; - for stdin (default: "+
			broker.JoinFileName+")",
	)
}

// sign signs policies that are made on a broker with the administrator's key. A cluster signs its
// own policies when it publishes them. If the key is missing, a dry run reports it.
func (s *policyOptions) sign(
	ctx context.Context,
	c client.Client,
	all *catalog.Catalog,
	policies []*v1alpha1.CablePolicies,
	dryRun bool,
) error {
	if !all.OnBroker() {
		return nil
	}
	general, err := s.signer(ctx, c)
	if err != nil && dryRun {
		s.progress().Warn("without --dry-run, this is refused: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	key := general.AdministratorKey()
	for _, p := range policies {
		sequence := s.Now().UnixMilli()
		if was := all.Replaces(p); was != nil {
			if before, err := exchange.Kinds().Verify(was, key.Public()); err == nil {
				sequence = max(sequence, before.Sequence+1)
			}
		}
		for _, set := range all.SetsOf(p) { // one: that of its namespace
			if err := exchange.Kinds().Sign(p, key, set, sequence); err != nil {
				return err
			}
		}
	}
	return nil
}

// signer returns the join file with the administrator's key of the broker. Members refuse what
// another key has signed.
func (s *policyOptions) signer(ctx context.Context, c client.Client) (*broker.JoinFile, error) {
	general, err := s.generalFile(s.file)
	if err != nil {
		return nil, err
	}
	var brokers v1alpha1.BrokerList
	if err := c.List(ctx, &brokers); err != nil {
		return nil, fmt.Errorf("reading the Broker: %w", err)
	}
	if len(brokers.Items) == 0 {
		return nil, errors.New("this cluster hosts no broker any more")
	}
	if err := general.CheckBroker(&brokers.Items[0]); err != nil { // the one that look.ReadPolicies reads
		return nil, fmt.Errorf("%s %w", cmp.Or(s.file, broker.JoinFileName), err)
	}
	return general, nil
}

// signAdopted signs policies of clusters, on a broker, as policies of the broker.
func (s *policyOptions) signAdopted(
	ctx context.Context,
	c client.Client,
	all *catalog.Catalog,
	found []*v1alpha1.CablePolicies,
	dryRun bool,
) error {
	var adopted []*v1alpha1.CablePolicies
	for _, p := range found {
		p = p.DeepCopy()
		delete(p.Labels, submarinerv1.ClusterIDLabel)
		adopted = append(adopted, p)
	}
	if err := s.sign(ctx, c, all, adopted, dryRun); err != nil {
		return err
	}
	for i, p := range adopted {
		found[i].Annotations = p.Annotations
	}
	return nil
}

// generalFile reads the join file with the administrator's key, which may have expired; "" is the
// file that deploy-broker writes.
func (g *globals) generalFile(path string) (*broker.JoinFile, error) {
	const why = "the administrator's key is needed to sign this, and only the join file that subctl deploy-broker wrote contains it"
	named := path != ""
	if !named {
		path = broker.JoinFileName
	}
	file, err := broker.ReadOldJoinFile(path, g.In)
	switch {
	case !named && errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no file %s here; specify the file with --broker-info", why, path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no file %s; specify another path with --broker-info", why, path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", why, err)
	case file.AdministratorKey().IsZero():
		return nil, fmt.Errorf("%s: %s is another one; specify the file with --broker-info", why, path)
	}
	return file, nil
}
