package drivers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOffered(t *testing.T) {
	all := Names()
	fields := Fields{Default: "cableDriver", Separate: "cableDrivers", Combined: "combinedCableDrivers"}
	for _, test := range []struct {
		name     string
		def      string
		separate string
		combined string
		want     string // the default first
		err      string
	}{
		{name: "nothing said", want: all},
		{name: "a default", def: "libreswan", want: "ipsec, " + strings.Replace(all, " ipsec,", "", 1)},
		{name: "listed", separate: "ipsec,wireguard", want: "ipsec, wireguard"},
		{name: "listed twice", separate: "ipsec,wireguard,libreswan", want: "ipsec, wireguard"},
		{name: "the default is not the first", def: "wireguard", separate: "ipsec,wireguard", want: "wireguard, ipsec"},
		{name: "a combined one", combined: "vxlan,ipsec", want: "vxlan+ipsec"},
		{
			name:     "in the other order",
			combined: "libreswan,vxlan",
			separate: "wireguard",
			want:     "wireguard, vxlan+ipsec",
		},
		{name: "a combined one as one name", separate: "vxlan+ipsec", want: "vxlan+ipsec"},
		{
			name: "unknown default",
			def:  "carrier-pigeon",
			err:  `cableDriver: unknown cable driver "carrier-pigeon": use one of ` + all,
		},
		{
			name:     "near",
			separate: "wiregard",
			err:      `cableDrivers: unknown cable driver "wiregard": did you mean wireguard? The drivers are ` + all,
		},
		{
			name:     "two mistakes",
			def:      "a",
			separate: "b",
			err: "cableDrivers: unknown cable driver \"b\": use one of " + all +
				"\ncableDriver: unknown cable driver \"a\": use one of " + all,
		},
		{
			name: "the default is not listed", def: "vxlan", separate: "ipsec",
			err: "cableDriver vxlan is not one of the drivers that the cluster offers (ipsec): add it to cableDrivers, or use one of these as the default",
		},
		{
			name: "one is no combination", combined: "vxlan",
			err: "combinedCableDrivers vxlan is one driver, and a combined cable is one inside another: choose vxlan,wireguard or vxlan,ipsec",
		},
		{
			name: "nor is a combination", combined: "vxlan+ipsec",
			err: "combinedCableDrivers vxlan+ipsec is one driver, and a combined cable is one inside another: choose vxlan,wireguard or vxlan,ipsec",
		},
		{
			name: "encryption inside encryption", combined: "wireguard,ipsec",
			err: "combinedCableDrivers wireguard,ipsec cannot be combined: choose vxlan,wireguard or vxlan,ipsec",
		},
		{
			name: "three", combined: "vxlan,wireguard,ipsec",
			err: "combinedCableDrivers vxlan,wireguard,ipsec cannot be combined: choose vxlan,wireguard or vxlan,ipsec",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			list := func(text string) []string {
				return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
			}
			got, err := Choice{
				Default:  test.def,
				Separate: list(test.separate),
				Combined: list(test.combined),
			}.Offered(fields)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, names(got))
		})
	}
}
