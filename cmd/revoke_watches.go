package cmd

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
)

// endWatches ends the watches of who has lost rights on a broker. who is the subject of the message
// if that fails.
func (g *globals) endWatches(ctx context.Context, c client.Client, who string) error {
	if err := broker.EndWatches(ctx, c); err != nil {
		return fmt.Errorf(
			"%s may still read what the broker's clustersets publish, through watches opened before: run the command again, or restart the API servers of the broker: %w",
			who, err)
	}
	return nil
}
