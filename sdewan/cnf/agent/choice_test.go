package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// refusing is a kernel that refuses some objects.
type refusing struct {
	dataplanetest.Fake
	refuses func(dataplane.Object) bool
}

func (k *refusing) Apply(ctx context.Context, op dataplane.Op) error {
	if op.New != nil && k.refuses(op.New) {
		return errors.New("invalid argument")
	}
	return k.Fake.Apply(ctx, op)
}

// Unanswered connections choose again although the kernel refuses something, unless the choice
// depends on it.
func TestChooseAnewDespiteAFailure(t *testing.T) {
	to := netip.MustParsePrefix("10.9.0.0/16")
	for name, test := range map[string]struct {
		refuses func(dataplane.Object) bool
		fails   bool
		chooses bool
	}{
		"nothing": {func(dataplane.Object) bool { return false }, false, true},
		"another route": {
			func(o dataplane.Object) bool { m, is := o.(dataplane.Multipath); return is && m.Dst == to },
			false, // it is no_effect of its object: see TestOneRefusedObject
			true,
		},
		"another rule": {
			func(o dataplane.Object) bool { m, is := o.(dataplane.PolicyRule); return is && m.Src == to },
			false,
			true,
		},
		"the table": {func(o dataplane.Object) bool { return o.Key().Kind == dataplane.KindRuleset }, true, false},
		"the default route of an uplink": {func(o dataplane.Object) bool {
			m, is := o.(dataplane.Multipath)
			return is && m.Table == dataplane.CNFTable+1 && m.Dst.Bits() == 0
		}, true, false},
		"the rule of an uplink": {func(o dataplane.Object) bool {
			m, is := o.(dataplane.MarkRule)
			return is && m.Table == dataplane.CNFTable+1
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := rest.Config{
				Policies: []rest.Policy{
					{Name: "one", Members: []rest.Member{{Interface: "net1", Metric: "1", Weight: "1"}}},
				},
				Rules: []rest.Rule{{Name: "all", Policy: "one", DestIP: "0.0.0.0/0", Proto: "all"}},
				Routes: []rest.Route{
					{Name: "r", Dst: to.String(), GW: "198.51.100.9", Dev: "net1", Table: "default"},
				},
				RouteRules: []rest.RouteRule{{Name: "r", Src: to.String(), Table: "main"}},
			}
			u := sdewan.DefaultUplink
			u.Gateway = netip.MustParseAddr("198.51.100.1")
			marked := 0
			a := New(Options{
				Log: slog.New(slog.DiscardHandler), Config: func() rest.Config { return config },
				Attachments: []sdewan.Attachment{
					{Network: "wan1", Device: "net1"},
				}, Uplinks: map[string]sdewan.Uplink{"wan1": u},
				Kernel: Kernel{
					Network: func() (dataplane.Network, error) {
						return dataplane.Network{
							Devices: []dataplane.NetDevice{
								{
									Name:  "net1",
									Up:    true,
									Addrs: []netip.Prefix{netip.MustParsePrefix("198.51.100.2/24")},
								},
							},
						}, nil
					},
					MarkConnections: func(uint32, uint32) error { marked++; return nil },
					Forward:         func([]string) error { return nil },
				},
			})
			err := a.pass(t.Context(), &refusing{refuses: test.refuses})
			require.Equal(t, test.fails, err != nil, "%v", err)
			require.Equal(t, test.chooses, marked == 1)
		})
	}
}
