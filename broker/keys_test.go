package broker_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/globalnet"
)

// The two keys of a broker are chosen by the same rules. In these files and brokers they have
// the same name.
func TestChooseKeys(t *testing.T) {
	const url, ns = "https://hub.example.com:6443", "submariner-k8s-broker"
	file := func(name string) *broker.JoinFile {
		key := brokertest.Key(name)
		return &broker.JoinFile{
			BrokerURL:     url,
			Namespace:     ns,
			PSK:           broker.Secret(name),
			SigningKey:    key,
			Administrator: key.Public(),
		}
	}
	deployed := func(name string, members ...string) broker.State {
		s := broker.State{Broker: &v1alpha1.Broker{}, Members: members}
		if name != "" {
			s.Broker.Annotations = map[string]string{
				broker.PSKFingerprintAnnotation: broker.Fingerprint(broker.Secret(name)),
				broker.AdministratorAnnotation:  brokertest.Key(name).Public().String(),
			}
		}
		return s
	}
	elsewhere := file("a")
	elsewhere.BrokerURL = "https://other:6443"
	const existing, named = "kept from the existing join file", "from the file given with --ipsec-psk-from"
	wrong := func(flag string, noun string) string {
		return "the " + noun + " of the file given with " + flag +
			" is not the one that the joined clusters use (east, west): leave the flag out, or uninstall them first"
	}
	lost := func(why string) string {
		return "clusters are joined (east), and their pre-shared key is needed, but " + why +
			": specify a file with --ipsec-psk-from, or get the key back from a joined cluster with subctl recover-broker-info\n" +
			"clusters are joined (east), and their administrator's key is needed, but " + why +
			": specify a file with --signing-key-from, even one that has expired; no cluster has this key: if all files are lost, uninstall these clusters, deploy the broker again, and join them"
	}
	for name, tc := range map[string]struct {
		state  broker.State
		from   broker.KeySources
		want   string // the name of both keys; empty: new ones
		origin string
		err    string
	}{
		"first time": {origin: "new"},
		"named":      {from: broker.KeySources{PSKFrom: file("a")}, want: "a", origin: named},
		"named, before existing": {
			state:  deployed("b"),
			from:   broker.KeySources{PSKFrom: file("a"), Existing: file("b")},
			want:   "a",
			origin: named,
		},
		"named, of another broker": {
			state: deployed("b", "east", "west"),
			from:  broker.KeySources{PSKFrom: file("a"), SigningKeyFrom: file("a")},
			err: wrong("--ipsec-psk-from", "pre-shared key") + "\n" +
				wrong("--signing-key-from", "administrator's key"),
		},
		"named once, of another": {
			state: deployed("b", "east", "west"),
			from:  broker.KeySources{PSKFrom: file("a")},
			err: wrong("--ipsec-psk-from", "pre-shared key") + "\n" +
				wrong("--ipsec-psk-from", "administrator's key"),
		},
		"again": {
			state:  deployed("a", "east"),
			from:   broker.KeySources{Existing: file("a")},
			want:   "a",
			origin: existing,
		},
		"again, nobody joined": {
			state:  deployed("a"),
			from:   broker.KeySources{Existing: file("a")},
			want:   "a",
			origin: existing,
		},
		"interrupted":            {state: deployed("a"), origin: "new"},
		"file of another broker": {state: deployed("a"), from: broker.KeySources{Existing: file("b")}, origin: "new"},
		"lost": {
			state: deployed("a", "east"),
			err:   lost("there is no join file of this broker here"),
		},
		"lost, file of another": {
			state: deployed("a", "east"),
			from:  broker.KeySources{Existing: file("b")},
			err:   lost("the join file here is of another broker"),
		},
		"lost, file is damaged": {
			state: deployed("a", "east"),
			from:  broker.KeySources{Reason: errors.New("join file f is cut off")},
			err:   lost("join file f is cut off"),
		},
		"no fingerprint": {
			state:  deployed("", "east"),
			from:   broker.KeySources{Existing: file("a")},
			want:   "a",
			origin: existing,
		},
		"no fingerprint elsewhere": {state: deployed(""), from: broker.KeySources{Existing: elsewhere}, origin: "new"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.from.URL = url
			tc.from.Namespace = ns
			keys, err := tc.state.ChooseKeys(tc.from)
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				require.Zero(t, keys)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{tc.origin, tc.origin}, []string{keys.PSKOrigin, keys.AdministratorOrigin})
			if tc.want == "" {
				require.Len(t, []byte(keys.PSK), 48)
				require.False(t, keys.Administrator.IsZero())
				return
			}
			require.Equal(t, tc.want, string([]byte(keys.PSK)))
			require.Equal(t, brokertest.Key(tc.want).Public(), keys.Administrator.Public())
		})
	}
	a, _ := broker.State{}.ChooseKeys(broker.KeySources{})
	b, _ := broker.State{}.ChooseKeys(broker.KeySources{})
	require.NotEqual(t, []byte(a.PSK), []byte(b.PSK))
	require.NotEqual(t, a.Administrator.Public(), b.Administrator.Public())
}

// The administrator's key is in general join files only, and each key may come from another file.
func TestChooseKeysFromTwoFiles(t *testing.T) {
	key := brokertest.Key("a")
	general := &broker.JoinFile{PSK: broker.Secret("a"), SigningKey: key, Administrator: key.Public()}
	invited := *general
	invitee := brokertest.Key("invitee")
	invited.SigningKey = invitee
	invited.Invitation = "an invitation"
	upstream := &broker.JoinFile{PSK: broker.Secret("a")}
	joined := broker.State{Broker: &v1alpha1.Broker{}, Members: []string{"east"}}
	joined.Broker.Annotations = map[string]string{
		broker.PSKFingerprintAnnotation: broker.Fingerprint(
			general.PSK),
		broker.AdministratorAnnotation: key.Public().String(),
	}
	keys, err := joined.ChooseKeys(broker.KeySources{PSKFrom: upstream, SigningKeyFrom: general})
	require.NoError(t, err)
	require.Equal(t, key.Public(), keys.Administrator.Public())
	require.Equal(t, "from the file given with --signing-key-from", keys.AdministratorOrigin)
	for _, without := range []*broker.JoinFile{upstream, &invited} {
		_, err = joined.ChooseKeys(broker.KeySources{SigningKeyFrom: without, Existing: general})
		require.EqualError(t, err,
			"the file given with --signing-key-from has no administrator's key: specify the general join file, which subctl deploy-broker wrote")
		_, err = joined.ChooseKeys(broker.KeySources{Existing: without})
		require.ErrorContains(t, err, "their administrator's key is needed, but the join file here does not contain it")
		keys, err = joined.ChooseKeys(broker.KeySources{PSKFrom: without, Existing: general})
		require.NoError(t, err)
		require.Equal(t, key.Public(), keys.Administrator.Public())
	}
}

// Globalnet can be enabled at any time, and its range can grow. While clusters have global
// networks, it cannot be disabled, and the range still contains what it did.
func TestCheckChange(t *testing.T) {
	as := func(cidr string) broker.Options {
		info, err := globalnet.Parse(cidr, 256)
		require.NoError(t, err)
		return broker.Options{Globalnet: info}
	}
	without := &v1alpha1.Broker{}
	deployed := &v1alpha1.Broker{
		Spec: v1alpha1.BrokerSpec{
			GlobalnetEnabled:            true,
			GlobalnetCIDRRange:          "242.0.0.0/9",
			DefaultGlobalnetClusterSize: 65536,
		},
	}
	used := broker.State{Broker: deployed, Members: []string{"east", "north", "west"}, Global: globalnet.Record{
		{ClusterID: "west", Networks: []netip.Prefix{netip.MustParsePrefix("242.0.0.0/16")}},
		{ClusterID: "east", Networks: []netip.Prefix{netip.MustParsePrefix("242.1.0.0/16")}},
	}}
	const (
		disabled = "globalnet cannot be disabled while clusters have global networks (east, west): join them again with --globalnet=false, or uninstall them first"
		moved    = "the globalnet range cannot become 243.0.0.0/8 while clusters have networks of 242.0.0.0/9 (east, west): specify a range that contains it, or uninstall the clusters first"
		smaller  = "the globalnet range cannot become 242.0.0.0/10 while clusters have networks of 242.0.0.0/9 (east, west): specify a range that contains it, or uninstall the clusters first"
	)
	for name, test := range map[string]struct {
		state broker.State
		will  broker.Options
		err   string
	}{
		"no broker":                    {broker.State{}, as("242.0.0.0/8"), ""},
		"enabled with members":         {broker.State{Broker: without, Members: used.Members}, as("242.0.0.0/8"), ""},
		"disabled with members":        {broker.State{Broker: deployed, Members: used.Members}, broker.Options{}, ""},
		"moved with members":           {broker.State{Broker: deployed, Members: used.Members}, as("243.0.0.0/8"), ""},
		"disabled with networks":       {used, broker.Options{}, disabled},
		"the same with networks":       {used, as("242.0.0.0/9"), ""},
		"moved with networks":          {used, as("243.0.0.0/8"), moved},
		"smaller with networks":        {used, as("242.0.0.0/10"), smaller},
		"larger with networks":         {used, as("242.0.0.0/8"), ""},
		"much larger, from below, too": {used, as("242.0.0.0/7"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.state.CheckChange(test.will)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.err)
			}
		})
	}
	require.Equal(t, []string{"north"}, used.WithoutGlobal())
}
