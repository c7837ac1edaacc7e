package sdewan_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/sdewan"
)

// The annotation of the proposal's Deployment.
const seedNetworks = `{ "type": "ovn4nfv", "interface": [
  {"defaultGateway": "false", "interface": "net0", "name": "ovn-priv-net"},
  {"defaultGateway": "false", "interface": "net1", "name": "ovn-provider-net1"},
  {"defaultGateway": "true", "interface": "net2", "name": "ovn-provider-net2", "ipAddress": "10.10.70.39/24", "gatewayipAddress": "10.10.70.1"}
]}`

func TestParseNetworks(t *testing.T) {
	n, err := sdewan.ParseNetworks(seedNetworks)
	require.NoError(t, err)
	require.Equal(t, sdewan.Networks{"ovn-priv-net": "net0", "ovn-provider-net1": "net1", "ovn-provider-net2": "net2"},
		n)
	list, err := sdewan.ParseAttachments(seedNetworks)
	require.NoError(t, err)
	require.Equal(t, sdewan.Attachment{
		Network: "ovn-provider-net2",
		Device:  "net2",
		Default: true,
		Address: netip.MustParsePrefix("10.10.70.39/24"),
		Gateway: netip.MustParseAddr("10.10.70.1"),
	}, list[2])
	n, err = sdewan.ParseNetworks(" ")
	require.NoError(t, err)
	require.Empty(t, n)
}

// What is wrong is named, and the rest counts.
func TestParseNetworksMistakes(t *testing.T) {
	for _, test := range []struct{ annotation, want string }{
		{"[]", `{"interface":"net0","name":"NETWORK"}]}: the value has the wrong type, array`},
		{`{"interface":[{"interface":"net0"}]}`, `interface[0]: name must be the name of a network, not ""`},
		{
			`{"interface":[{"name":"a"}]}`,
			`interface[0]: interface must be the name of a device, of at most 15 characters, not ""`,
		},
		{`{"interface":[{"name":"a","interface":"../../etc/passwd"}]}`, `interface must be the name of a device`},
		{
			`{"interface":[{"name":"a","interface":"n` + strings.Repeat("x", 1000) + `"}]}`,
			`interface must be the name of a device`,
		},
		{
			`{"interface":[{"name":"a","interface":"net0"},{"name":"b","interface":"net0"}]}`,
			`interface[1]: device net0 is listed twice`,
		},
		{
			`{"interface":[{"name":"a","interface":"net0","ipAddress":"10.0.0.0/33"}]}`,
			`ipAddress must be an address such as 192.0.2.1/24, not "10.0.0.0/33"`,
		},
		{
			`{"interface":[{"name":"a","interface":"net0","gatewayipAddress":"gw"}]}`,
			`gatewayipAddress must be an IP address, not "gw"`,
		},
		{`{"interface":[` + strings.Repeat(`{},`, 100) + `{}]}`, "lists 101 devices: at most 60 are possible"},
		{strings.Repeat("x", 300<<10), "has 307200 bytes"},
		{`{"interface":` + strings.Repeat("[", 20000), "must be JSON"},
	} {
		_, err := sdewan.ParseNetworks(test.annotation)
		require.ErrorContains(t, err, test.want)
		require.Less(t, len(err.Error()), 30000)
	}
	n, err := sdewan.ParseNetworks(
		`{"interface":[{"name":"a"},{"name":"b","interface":"net1"},{"name":"b","interface":"net2"}]}`)
	require.Error(t, err)
	require.Equal(t, sdewan.Networks{"b": "net1"}, n)
}

func FuzzParseNetworks(f *testing.F) {
	f.Add(seedNetworks)
	f.Add(
		`{"interface":[{"name":"a","interface":"net0","defaultGateway":true,"ipAddress":"::1","gatewayipAddress":"fe80::1%net0"}]}`)
	f.Fuzz(func(t *testing.T, annotation string) {
		list, _ := sdewan.ParseAttachments(annotation)
		devices := map[string]bool{}
		for _, a := range list {
			if a.Network == "" || a.Device == "" || len(a.Device) > 15 || strings.ContainsAny(a.Device, "/ \n\x00") ||
				devices[a.Device] {
				t.Errorf("%+v", a)
			}
			devices[a.Device] = true
		}
	})
}
