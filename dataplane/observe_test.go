package dataplane_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

// watched is a Fake that notes of which kinds objects were observed.
type watched struct {
	dataplanetest.Fake
	looks [][]dataplane.Kind
	// meanwhile is called once, before objects of some kinds are observed.
	meanwhile func()
}

func (w *watched) Observe(ctx context.Context, kinds ...dataplane.Kind) (dataplane.State, error) {
	if w.meanwhile != nil && len(kinds) > 0 {
		w.meanwhile()
		w.meanwhile = nil
	}
	w.looks = append(w.looks, kinds)
	return w.Fake.Observe(ctx, kinds...)
}

// After a pass, Sync observes the kinds of objects that the steps may have changed: all kinds where
// the kernel removes other objects with one, where a step failed, and where an object is not as
// wanted.
func TestSyncObservesWhatMayHaveChanged(t *testing.T) {
	const (
		nexthops = dataplane.KindNexthop
		groups   = dataplane.KindGroup
		routes   = dataplane.KindRoute
		rules    = dataplane.KindRule
	)
	type looks = [][]dataplane.Kind
	moved := hop
	another := rule
	other := device
	moved.ID = 2
	moved.Via = netip.MustParseAddr("241.18.0.4")
	another.Priority++
	other.VNI++
	to := func(id uint32, buckets int) dataplane.Group {
		return dataplane.Group{ID: group.ID, Buckets: buckets, Members: []dataplane.Member{{ID: id, Weight: 1}}}
	}
	for _, test := range []struct {
		name      string
		change    func(want dataplane.State)
		failAt    int
		meanwhile func(*watched)
		looks     looks
	}{
		{name: "nothing to do", change: func(dataplane.State) {}, looks: looks{nil}},
		{
			name:   "another rule",
			change: func(s dataplane.State) { s[another.Key()] = another },
			looks:  looks{nil, {rules}},
		},
		{name: "another next hop", change: func(s dataplane.State) {
			delete(s, hop.Key())
			s[moved.Key()] = moved
			s[group.Key()] = to(moved.ID, 0)
		}, looks: looks{nil, {nexthops, groups}}},
		{
			name:   "a group of another type",
			change: func(s dataplane.State) { s[group.Key()] = to(hop.ID, 8) },
			looks:  looks{nil, {groups, routes}, nil, {routes}},
		},
		{name: "a device", change: func(s dataplane.State) { s[device.Key()] = other }, looks: looks{nil, nil}},
		{
			name:   "a step that fails",
			change: func(s dataplane.State) { s[another.Key()] = another },
			failAt: 1,
			looks:  looks{nil, nil},
		},
		{
			name:      "another program removes it meanwhile",
			change:    func(s dataplane.State) { s[another.Key()] = another },
			meanwhile: func(w *watched) { require.NoError(t, w.Remove(another.Key())) },
			looks:     looks{nil, {rules}, nil, {rules}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &watched{}
			_, err := dataplane.Sync(t.Context(), &w.Fake, all(t))
			require.NoError(t, err)
			if test.failAt > 0 {
				w.FailAt = w.Applied() + test.failAt
			}
			if test.meanwhile != nil {
				w.meanwhile = func() { test.meanwhile(w) }
			}
			want := all(t)
			test.change(want)
			_, err = dataplane.Sync(t.Context(), w, want)
			require.Equal(t, test.looks, w.looks)
			have, _ := w.Fake.Observe(t.Context())
			require.Equal(t, err == nil, len(dataplane.Diff(have, want)) == 0, "%v", err)
			require.Equal(t, test.failAt > 0, err != nil, "%v", err)
		})
	}
}
