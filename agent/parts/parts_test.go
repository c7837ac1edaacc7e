package parts

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"subctl/agent/role"
	"subctl/agent/roles"
)

// start runs a part in the background of a synctest bubble.
func start(t *testing.T, p manager.Runnable) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Start(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// pass lets time pass in a synctest bubble.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Every part that a role names exists, and adds to snapshots or follows plans.
func TestPartsOfRoles(t *testing.T) {
	for _, role := range roles.All() {
		got, err := New(role.Parts, Options{Config: &rest.Config{}, Lease: DefaultLease})
		require.NoError(t, err)
		require.Len(t, got, len(role.Parts))
		for i, p := range got {
			_, observes := p.(Observer)
			_, acts := p.(Actor)
			require.True(t, observes || acts, "the %s does nothing for the loop", role.Parts[i])
		}
	}
	_, err := New([]role.Part{"divination"}, Options{})
	require.EqualError(t, err, `there is no part "divination"`)
}
