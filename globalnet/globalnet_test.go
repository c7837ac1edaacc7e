package globalnet_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/globalnet"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		cidr string
		size uint
		want string // rounded size and range, or the error
	}{
		"defaults": {globalnet.DefaultRange, globalnet.DefaultClusterSize, ""},
		"half":     {"10.0.0.0/16", 32768, ""},
		"smallest": {"10.0.0.0/27", 16, ""},
		"more than half": {
			"10.0.0.0/16",
			32769,
			"globalnet cluster size 32769 (rounded up to 65536) is more than half of 10.0.0.0/16 (65536 addresses): use at most 32768, or a larger range",
		},
		"malformed": {"10.0.0.0", 16, `globalnet range "10.0.0.0" is not a network: write it like 242.0.0.0/8`},
		"empty":     {"", 16, `globalnet range "" is not a network: write it like 242.0.0.0/8`},
		"host bits": {
			"10.0.0.1/16",
			16,
			"globalnet range 10.0.0.1/16 has host bits set: did you mean 10.0.0.0/16?",
		},
		"loopback": {
			"127.0.0.0/16",
			16,
			"globalnet range 127.0.0.0/16 overlaps the loopback addresses 127.0.0.0/8: use another range, such as 242.0.0.0/8",
		},
		"link-local": {
			"169.254.0.0/16",
			16,
			"globalnet range 169.254.0.0/16 overlaps the link-local addresses 169.254.0.0/16: use another range, such as 242.0.0.0/8",
		},
		"multicast": {
			"225.0.0.0/8",
			16,
			"globalnet range 225.0.0.0/8 overlaps the multicast addresses 224.0.0.0/4: use another range, such as 242.0.0.0/8",
		},
		"everything": {
			"0.0.0.0/0",
			16,
			"globalnet range 0.0.0.0/0 overlaps the unspecified addresses 0.0.0.0/8: use another range, such as 242.0.0.0/8",
		},
		"holds loopback": {
			"126.0.0.0/7",
			16,
			"globalnet range 126.0.0.0/7 overlaps the loopback addresses 127.0.0.0/8: use another range, such as 242.0.0.0/8",
		},
		"cable network": {
			"241.0.0.0/16",
			16,
			"globalnet range 241.0.0.0/16 overlaps the addresses 241.0.0.0/8 of our VXLAN devices between gateways: use another range, such as 242.0.0.0/8",
		},
		"encrypted": {
			"246.0.0.0/8",
			16,
			"globalnet range 246.0.0.0/8 overlaps the addresses 244.0.0.0/6 of our encrypted devices between gateways: use another range, such as 242.0.0.0/8",
		},
		"too small": {
			"10.0.0.0/28",
			16,
			"globalnet range 10.0.0.0/28 is too small for two clusters: use a /27 or larger",
		},
		"IPv6": {"fd00::/8", 16, "globalnet range fd00::/8 is not IPv4: write it like 242.0.0.0/8"},
		"no address": {
			"10.0.0.0/16",
			0,
			"globalnet cluster size 0 leaves too few addresses: use a power of two of at least 16, such as 65536",
		},
		"beyond IPv4": {
			"10.0.0.0/16",
			1 << 40,
			"globalnet cluster size 1099511627776 is more than half of all addresses: use a power of two, such as 65536",
		},
		"both are wrong": {
			"x",
			0,
			"globalnet range \"x\" is not a network: write it like 242.0.0.0/8\nglobalnet cluster size 0 leaves too few addresses: use a power of two of at least 16, such as 65536",
		},
		"IPv4 in IPv6": {
			"::ffff:10.0.0.0/104",
			16,
			"globalnet range ::ffff:10.0.0.0/104 is not IPv4: write it like 242.0.0.0/8",
		},
		"spaces are fine": {" 10.0.0.0/16 ", 16, ""},
	} {
		t.Run(name, func(t *testing.T) {
			info, err := globalnet.Parse(tc.cidr, tc.size)
			if tc.want != "" {
				require.EqualError(t, err, tc.want)
				require.Zero(t, info)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.size, info.ClusterSize)
			require.True(t, info.Enabled)
		})
	}
}

func TestSizeIsRoundedUp(t *testing.T) {
	for size, want := range map[uint]uint{16: 16, 17: 32, 65535: 65536, 65537: 131072} {
		info, err := globalnet.Parse("10.0.0.0/8", size)
		require.NoError(t, err)
		require.Equal(t, globalnet.Info{Enabled: true, Range: netip.MustParsePrefix("10.0.0.0/8"), ClusterSize: want},
			info)
	}
}
