package drivers_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

// No device carries packets while the rules that filter them cannot be installed: not the
// chains of iptables, and not the tables of nftables.
func TestGuarded(t *testing.T) {
	each(t, func(t *testing.T, d cable.Driver) {
		plan := whole(t, local(1), func(int) cable.Driver { return d }, peers(t, 2))
		require.NotEmpty(t, devices(plan))
		for k := range plan {
			switch k.Kind {
			case dataplane.KindChain, dataplane.KindRuleset:
			default:
				continue
			}
			f := dataplanetest.Fake{Refuse: func(o dataplane.Object) error {
				if o.Key() == k {
					return errors.New("refused")
				}
				return nil
			}}
			_, err := dataplane.Sync(t.Context(), &f, plan)
			require.ErrorIs(t, err, dataplane.ErrDrift)
			held, err := f.Observe(t.Context())
			require.NoError(t, err)
			require.Empty(t, devices(held), "although %v could not be put", k)
		}
	})
}

// devices returns the names of the devices in a state.
func devices(s dataplane.State) (names []string) {
	for _, o := range s.Sorted() {
		if k := o.Key(); k.Kind == dataplane.KindLink {
			names = append(names, k.Name)
		}
	}
	return names
}
