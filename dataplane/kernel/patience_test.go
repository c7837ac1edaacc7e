//go:build linux

package kernel

import (
	"errors"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/store"

	"github.com/stretchr/testify/require"
)

// What has failed slowly is not tried again at once; something else in its place is.
func TestPatience(t *testing.T) {
	tries := &slowStore{}
	h := &Host{byKind: map[dataplane.Kind]store.Store{dataplane.KindRule: tries}, setbacks: map[dataplane.Key]setback{}}
	want := dataplane.Rule{Priority: 1, Table: 1}
	require.ErrorIs(t, h.try(nil, want), errSlow)
	require.ErrorIs(t, h.try(nil, want), errSlow)
	require.Equal(t, 1, tries.n)
	other := want
	other.Table++
	require.ErrorIs(t, h.try(nil, other), errSlow)
	require.Equal(t, 2, tries.n)
	s := h.setbacks[want.Key()]
	s.until = time.Now()
	h.setbacks[want.Key()] = s
	require.ErrorIs(t, h.try(nil, other), errSlow)
	require.Equal(t, 3, tries.n, "it is later now")
}

var errSlow = errors.New("slow")

type slowStore struct {
	store.Store
	n int
}

func (s *slowStore) Put(_, _ dataplane.Object) error {
	s.n++
	time.Sleep(slow)
	return errSlow
}
