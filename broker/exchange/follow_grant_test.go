package exchange

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A grant that comes after what it permits takes effect at once, and not with the next pass.
func TestFollowGrant(t *testing.T) {
	var grant atomic.Value
	grant.Store("before")
	looked := make(chan struct{}, 100)
	e := New(Config{Identity: func() (Identity, error) {
		looked <- struct{}{}
		return Identity{Grant: grant.Load().(string)}, nil
	}})
	go e.followGrant(t.Context())
	<-looked
	<-looked
	select {
	case <-e.trigger:
		t.Fatal("a pass without a reason")
	default:
	}
	grant.Store("after")
	select {
	case <-e.trigger:
	case <-time.After(resync):
		t.Fatal("no pass")
	}
	require.Empty(t, e.trigger, "one pass")
}
