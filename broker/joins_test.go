package broker_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"subctl/broker"
	"subctl/internal/kubetest"
)

// Clusters that join at once all get their places in time, although an API server charges a quota
// for one object after the other.
func TestManyJoinAtOnce(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	_, file := d.Joiner(t)
	config := file.RESTConfig(false)
	config.QPS = -1 // as of join
	for _, clusters := range []int{1, 20} {
		var group sync.WaitGroup
		began := time.Now()
		for i := range clusters {
			group.Go(func() {
				id := fmt.Sprintf("of-%d-%d", clusters, i)
				_, err := broker.AddMember(ctx, kubetest.Client(t, config), d.NS, id, "uid-"+id, broker.Reservation{})
				assert.NoError(t, err)
			})
		}
		group.Wait()
		t.Logf("%d at once: %s", clusters, time.Since(began).Round(time.Millisecond))
		for i := range clusters {
			require.Equal(t, 1+4+8+16, stored(t, d, fmt.Sprintf("of-%d-%d", clusters, i)))
		}
	}
}
