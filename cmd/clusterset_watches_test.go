package cmd

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/cli"
)

// Whoever loses rights on the broker reads nothing more through a watch, for however long it was
// opened.
func TestHostileWatchesAfterCommands(t *testing.T) {
	w := newSetsWorld(t)
	joiner, _ := w.Joiner(t)
	limit := int64(math.MaxInt32)
	for _, test := range []struct {
		line   string
		former client.Client
	}{
		{"clusterset remove default east --force", w.members["east"].(interface{ Unwrap() client.Client }).Unwrap()},
		{"revoke west --yes", w.members["west"].(interface{ Unwrap() client.Client }).Unwrap()},
		{"revoke --join-files --yes", joiner},
	} {
		var watches []watch.Interface
		for _, k := range exchange.Kinds() {
			options := &client.ListOptions{Namespace: w.NS, Raw: &metav1.ListOptions{TimeoutSeconds: &limit}}
			opened, err := test.former.(client.WithWatch).Watch(t.Context(),
				k.List.DeepCopyObject().(client.ObjectList), options)
			require.NoError(t, err, "%s: %s", test.line, k.Resource)
			watches = append(watches, opened)
		}
		r := w.subctl(t, test.line)
		require.Equal(t, cli.ExitDone, r.code, r.stderr)
		patience := time.After(brokertest.Patience)
		for i, opened := range watches {
			for open := true; open; {
				select {
				case _, open = <-opened.ResultChan():
				case <-patience:
					t.Fatalf("%s: the watch of %s goes on", test.line, exchange.Kinds()[i].Resource)
				}
			}
		}
	}
}
