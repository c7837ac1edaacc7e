package broker_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/globalnet"
)

func TestChoosePSK(t *testing.T) {
	const url, ns = "https://hub.example.com:6443", "submariner-k8s-broker"
	file := func(psk string) *broker.JoinFile {
		return &broker.JoinFile{BrokerURL: url, Namespace: ns, PSK: broker.Secret(psk)}
	}
	deployed := func(psk string, members ...string) broker.State {
		s := broker.State{Broker: &v1alpha1.Broker{}, Members: members}
		if psk != "" {
			s.Broker.Annotations = map[string]string{broker.PSKFingerprintAnnotation: broker.Fingerprint(broker.Secret(psk))}
		}
		return s
	}
	elsewhere := file("a")
	elsewhere.BrokerURL = "https://other:6443"
	const lost = ": specify a file with --ipsec-psk-from, or get the key back from a joined cluster with subctl recover-broker-info"
	for name, tc := range map[string]struct {
		state  broker.State
		from   broker.PSKSources
		want   string // the key; empty: a new one
		origin string
		err    string
	}{
		"first time":                   {origin: "new"},
		"named":                        {from: broker.PSKSources{From: file("a")}, want: "a", origin: "from the file given with --ipsec-psk-from"},
		"named, before the existing":   {state: deployed("b"), from: broker.PSKSources{From: file("a"), Existing: file("b")}, want: "a", origin: "from the file given with --ipsec-psk-from"},
		"named, of another broker":     {state: deployed("b", "east", "west"), from: broker.PSKSources{From: file("a")}, err: "the pre-shared key of the file given with --ipsec-psk-from is not the one that the joined clusters use (east, west): leave the flag out, or uninstall them first"},
		"again":                        {state: deployed("a", "east"), from: broker.PSKSources{Existing: file("a")}, want: "a", origin: "kept from the existing join file"},
		"again, nobody joined":         {state: deployed("a"), from: broker.PSKSources{Existing: file("a")}, want: "a", origin: "kept from the existing join file"},
		"interrupted before the file":  {state: deployed("a"), origin: "new"},
		"file of another broker":       {state: deployed("a"), from: broker.PSKSources{Existing: file("b")}, origin: "new"},
		"lost":                         {state: deployed("a", "east"), err: "clusters are joined (east), and their pre-shared key is needed, but there is no join file of this broker here" + lost},
		"lost, file of another broker": {state: deployed("a", "east"), from: broker.PSKSources{Existing: file("b")}, err: "clusters are joined (east), and their pre-shared key is needed, but the join file here is of another broker" + lost},
		"lost, file is damaged":        {state: deployed("a", "east"), from: broker.PSKSources{Reason: errors.New("join file f is cut off")}, err: "clusters are joined (east), and their pre-shared key is needed, but join file f is cut off" + lost},
		"no fingerprint":               {state: deployed("", "east"), from: broker.PSKSources{Existing: file("a")}, want: "a", origin: "kept from the existing join file"},
		"no fingerprint, elsewhere":    {state: deployed(""), from: broker.PSKSources{Existing: elsewhere}, origin: "new"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.from.URL, tc.from.Namespace = url, ns
			psk, origin, err := tc.state.ChoosePSK(tc.from)
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				require.Nil(t, psk)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.origin, origin)
			if tc.want == "" {
				require.Len(t, []byte(psk), 48)
			} else {
				require.Equal(t, tc.want, string([]byte(psk)))
			}
		})
	}
	a, _, _ := broker.State{}.ChoosePSK(broker.PSKSources{})
	b, _, _ := broker.State{}.ChoosePSK(broker.PSKSources{})
	require.NotEqual(t, []byte(a), []byte(b))
}

func TestCheckChange(t *testing.T) {
	on, err := globalnet.Parse("242.0.0.0/8", 65536)
	require.NoError(t, err)
	deployed := &v1alpha1.Broker{Spec: v1alpha1.BrokerSpec{GlobalnetEnabled: true, GlobalnetCIDRRange: "242.0.0.0/8", DefaultGlobalnetClusterSize: 65536}}
	require.NoError(t, broker.State{}.CheckChange(broker.Options{}))
	require.NoError(t, broker.State{Broker: deployed}.CheckChange(broker.Options{}))
	joined := broker.State{Broker: deployed, Members: []string{"east"}}
	require.NoError(t, joined.CheckChange(broker.Options{Globalnet: on}))
	require.EqualError(t, joined.CheckChange(broker.Options{}), "globalnet is on, with 242.0.0.0/8, and cannot be off while clusters are joined (east): "+
		"specify the flags that it was deployed with, or uninstall the clusters first")
}
