package parts

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	"subctl/cable"
	"subctl/dataplane"
)

// TolerateNew implements dataplane.FlowTolerator.
func (k *flowKernel) TolerateNew(ctx context.Context, in func(netip.Addr) bool) (<-chan error, error) {
	if k.deaf != nil {
		return nil, k.deaf
	}
	k.following = append(k.following, ctx)
	k.in = in
	k.ended = make(chan error, 1)
	return k.ended, nil
}

// New connections are followed while this gateway carries traffic and the cluster has another
// gateway, and of all networks that are known then.
func TestYoung(t *testing.T) {
	first := netip.MustParsePrefix("10.2.0.0/16")
	second := netip.MustParsePrefix("10.3.0.0/16")
	q := dataplane.FlowQuery{Networks: []netip.Prefix{first}, Tolerate: true}
	whileCounting(t, q, 0, func(t *testing.T, f *flowTest) {
		following := func() (n int) {
			for _, ctx := range f.kernel.following {
				if ctx.Err() == nil {
					n++
				}
			}
			return n
		}
		f.observe(role.Standing{Active: true}, nil)
		require.Equal(t, 1, following())
		require.True(t, f.kernel.in(first.Addr()))
		require.False(t, f.kernel.in(second.Addr()))

		q.Networks = []netip.Prefix{first, second}
		f.setQuery(q, false)
		f.after(time.Minute)
		require.Len(t, f.kernel.following, 1, "it goes on")
		require.True(t, f.kernel.in(second.Addr()))

		f.observe(role.Standing{Active: true, Drain: cable.Standby}, nil)
		require.Zero(t, following())
		f.observe(role.Standing{Active: true}, nil)
		require.Equal(t, 1, following())

		q.Tolerate = false
		f.setQuery(q, false)
		f.after(2 * time.Minute)
		require.Zero(t, following(), "there is no other gateway any more")
	})
}

// A kernel that tells of no new connections is asked again, and connections are read all the same.
func TestYoungNotTold(t *testing.T) {
	q := dataplane.FlowQuery{Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Tolerate: true}
	whileCounting(t, q, 0, func(t *testing.T, f *flowTest) {
		f.kernel.deaf = errors.New("no such group")
		f.observe(role.Standing{Active: true}, nil)
		f.after(time.Minute)
		require.Empty(t, f.kernel.following)
		require.NotEmpty(t, f.kernel.reads)
		f.kernel.deaf = nil
		f.after(2 * time.Minute)
		require.Len(t, f.kernel.following, 1)
	})
}

// When the kernel tells of new connections no longer, it is asked again. A fault that stays is
// logged once.
func TestYoungNoLongerTold(t *testing.T) {
	q := dataplane.FlowQuery{Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Tolerate: true}
	whileCounting(t, q, 0, func(t *testing.T, f *flowTest) {
		var log bytes.Buffer
		f.Log = slog.New(slog.NewTextHandler(&log, nil))
		f.observe(role.Standing{Active: true}, nil)
		for i := range 3 {
			f.kernel.ended <- errors.New("cannot receive")
			f.after(time.Duration(i+1) * flowsEvery)
			require.Len(t, f.kernel.following, i+2)
			require.Error(t, f.kernel.following[i].Err(), "it has ended")
			require.NoError(t, f.kernel.following[i+1].Err())
		}
		require.Equal(t, 1, strings.Count(log.String(), "\n"), "the fault is logged once: %s", &log)
		f.after(3*flowsEvery + endedAfter)
		require.Equal(t, 1, strings.Count(log.String(), "ended: "), "%s", &log)
	})
}
