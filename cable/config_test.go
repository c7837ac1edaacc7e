package cable

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// optioned is a driver of which only name and options are asked.
type optioned struct {
	Driver
	name    string
	options []Option
}

func (o optioned) Name() string      { return o.name }
func (o optioned) Options() []Option { return o.options }

func (o optioned) Properties() Properties { return Properties{Parts: strings.Split(o.name, "+")} }

// Options of every kind, as drivers have them.
var (
	testVNI = Option{
		Key:     "vxlanID",
		Kind:    OptionNumber,
		Default: "1000",
		Min:     1,
		Max:     16777215,
		PerPair: true,
		Doc:     "VNI",
	}
	testVXPort    = Option{Key: "vxlanPort", Kind: OptionNumber, Default: "4502", Min: 1, Max: 65535}
	testWGPort    = Option{Key: "wireguardPort", Kind: OptionNumber, Default: "4501", Min: 1, Max: 65535}
	testKeepalive = Option{Key: "keepalive", Kind: OptionDuration, Default: "25s", Min: 0, Max: 3600, PerPair: true}
	testEncap     = Option{
		Key:     "encapsulation",
		Kind:    OptionText,
		Default: "auto",
		Allowed: []string{"auto", "yes", "no"},
		PerPair: true,
	}
	testDebug = Option{Key: "debug", Kind: OptionBool, Default: "false", PerPair: true}
	testText  = Option{Key: "proposals", Kind: OptionText, Default: "aes", PerPair: true}

	testVXLAN     = optioned{name: VXLAN, options: []Option{testVNI, testVXPort, OptionMTU}}
	testWireGuard = optioned{name: WireGuard, options: []Option{testWGPort, testKeepalive, OptionMTU}}
	testIPsec     = optioned{name: IPsec, options: []Option{testEncap, testDebug, testText, OptionMTU}}
	testCombined  = optioned{name: VXLANWireGuard, options: []Option{testVNI, testWGPort, testKeepalive, OptionMTU}}
	testDrivers   = []Driver{testVXLAN, testWireGuard, testIPsec, testCombined}
)

func TestParseConfig(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       map[string]Config // drivers without settings left out
	}{
		{"empty", "", nil},
		{"comments only", "# nothing\n", nil},
		{"null", "---\n", nil},
		{"for all that know it", "vxlanID: 100\nmtu: 1400", map[string]Config{
			VXLAN: {"vxlanID": "100", "mtu": "1400"}, WireGuard: {"mtu": "1400"}, IPsec: {"mtu": "1400"},
			VXLANWireGuard: {"vxlanID": "100", "mtu": "1400"},
		}},
		{"for one and what it is part of", "wireguard: {keepalive: 90}", map[string]Config{
			WireGuard: {"keepalive": "90s"}, VXLANWireGuard: {"keepalive": "90s"},
		}},
		{"own name counts most", "vxlan+wireguard: {mtu: 1000}\nwireguard: {mtu: 1200}\nmtu: 1400", map[string]Config{
			VXLAN: {"mtu": "1400"}, WireGuard: {"mtu": "1200"}, IPsec: {"mtu": "1400"}, VXLANWireGuard: {"mtu": "1000"},
		}},
		{"alias", "libreswan: {encapsulation: yes, debug: true}\nWireGuard+vxlan: {vxlanID: 7}", map[string]Config{
			IPsec: {"encapsulation": "yes", "debug": "true"}, VXLANWireGuard: {"vxlanID": "7"},
		}},
		{"of the gateway, wherever it stands", "vxlan+wireguard: {wireguardPort: 5000}", map[string]Config{
			WireGuard: {"wireguardPort": "5000"}, VXLANWireGuard: {"wireguardPort": "5000"},
		}},
		{
			"quoted",
			`vxlan: {vxlanID: "0100"}`,
			map[string]Config{VXLAN: {"vxlanID": "100"}, VXLANWireGuard: {"vxlanID": "100"}},
		},
		{"nothing below a driver", "wireguard:\n#  keepalive: 3\n", nil},
		{
			"hours",
			"keepalive: 1h",
			map[string]Config{WireGuard: {"keepalive": "1h"}, VXLANWireGuard: {"keepalive": "1h"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseConfig(test.text, testDrivers)
			require.NoError(t, err)
			for name, c := range got {
				if len(c) == 0 {
					delete(got, name)
				}
			}
			if test.want == nil {
				test.want = map[string]Config{}
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestParseConfigMistakes(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"range", "vxlanID: 16777216", `line 1: vxlanID "16777216": it must be a whole number from 1 to 16777215`},
		{
			"type",
			"vxlan:\n  vxlanID: many",
			`line 2: vxlan.vxlanID "many": it must be a whole number from 1 to 16777215`,
		},
		{"float", "mtu: 1400.5", `line 1: mtu "1400.5": it must be a whole number from 576 to 65535`},
		{"duration", "keepalive: 2h", `line 1: keepalive "2h": it must be whole seconds from 0s to 1h, such as 25s`},
		{
			"part of a second",
			"keepalive: 1500ms",
			`line 1: keepalive "1500ms": it must be whole seconds from 0s to 1h, such as 25s`,
		},
		{"bool", "debug: yes", `line 1: debug "yes": it must be true or false`},
		{"text", "encapsulation: maybe", `line 1: encapsulation "maybe": it must be one of auto, yes, no`},
		{
			"text of two lines",
			"proposals: \"aes\\nother\"",
			`line 1: proposals "aes?other": it must consist of printable ASCII characters, on one line`,
		},
		{"unknown", "vxlanId: 1", `line 1: vxlanId: no cable driver has it: did you mean vxlanID?`},
		{
			"unknown, nothing near",
			"wireguard: {colour: red}",
			`line 1: wireguard.colour: wireguard has no such setting: use one of keepalive, mtu, wireguardPort`,
		},
		{
			"of another driver",
			"wireguard: {encapsulation: auto}",
			`line 1: wireguard.encapsulation: wireguard has no such setting, but ipsec has it: use one of keepalive, mtu, wireguardPort`,
		},
		{
			"unknown driver",
			"wiregard: {keepalive: 3}",
			`line 1: unknown cable driver "wiregard": did you mean wireguard? The drivers are vxlan, wireguard, ipsec, vxlan+wireguard`,
		},
		{
			"driver with a value",
			"wireguard: 3",
			`line 1: wireguard is a cable driver: write its settings below it, indented, one per line`,
		},
		{"no value", "mtu:", `line 1: mtu has no value: specify one, or remove the line for the default`},
		{"list", "mtu: [1400]", `line 1: mtu takes a single value, not a list`},
		{
			"alias of YAML",
			"mtu: &a 1400\nwireguard: {mtu: *a}",
			`line 2: wireguard.mtu takes a single value, not an alias`,
		},
		{"twice", "mtu: 1400\nmtu: 1300", `line 2: mtu is already on line 1`},
		{"a driver twice", "ipsec: {debug: true}\nlibreswan: {debug: false}", `line 2: libreswan is already on line 1`},
		{
			"two values for the gateway", "wireguardPort: 5000\nvxlan+wireguard: {wireguardPort: 5001}",
			`line 2: vxlan+wireguard.wireguardPort "5001": line 1 sets it to "5000", but it has one value for all cables`,
		},
		{"not YAML", "vxlanID: 100\n  mtu: 3", "not YAML: line 2: mapping values are not allowed in this context"},
		{
			"a word",
			"vxlan",
			"line 1: settings of cable drivers must be a YAML mapping (KEY: VALUE), not a single value",
		},
		{
			"two documents",
			"mtu: 1400\n---\nmtu: 1300",
			"line 2: a second YAML document starts: write all settings into one document",
		},
		{
			"too long",
			strings.Repeat("#", maxConfig+1),
			"the settings of cable drivers have 65537 bytes: at most 65536 are accepted",
		},
		{"too many", strings.Repeat("vxlan: {}\n", 300), "there are more than 256 settings of cable drivers"},
		{
			"a terminal is not steered",
			"mtu: \"\\e[2J\"",
			`line 1: mtu "?[2J": it must be a whole number from 576 to 65535`,
		},
		{
			"all at once",
			"vxlanID: 0\nnonsense: 1\nmtu: big",
			"line 1: vxlanID \"0\": it must be a whole number from 1 to 16777215\n" +
				"line 2: nonsense: no cable driver has it: use one of debug, encapsulation, keepalive, mtu, proposals, vxlanID, vxlanPort, wireguardPort\n" +
				"line 3: mtu \"big\": it must be a whole number from 576 to 65535",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseConfig(test.text, testDrivers)
			require.EqualError(t, err, test.want)
		})
	}
}

func TestParsePolicyConfig(t *testing.T) {
	for _, test := range []struct {
		name, text string
		driver     Driver
		want       Config
		err        string
	}{
		{name: "none", driver: testWireGuard},
		{name: "its own", text: "keepalive: 10", driver: testWireGuard, want: Config{"keepalive": "10s"}},
		{
			name:   "of a part",
			text:   "wireguard: {keepalive: 10}\nvxlanID: 9",
			driver: testCombined,
			want:   Config{"keepalive": "10s", "vxlanID": "9"},
		},
		{
			name:   "of another driver does not count",
			text:   "ipsec: {debug: true}\nmtu: 1280",
			driver: testWireGuard,
			want:   Config{"mtu": "1280"},
		},
		{
			name:   "of another driver is checked",
			text:   "ipsec: {debug: 1}",
			driver: testWireGuard,
			err:    `line 1: ipsec.debug "1": it must be true or false`,
		},
		{
			name: "of another driver, under no name", text: "vxlanID: 100", driver: testWireGuard,
			err: `line 1: vxlanID: wireguard has no such setting, but vxlan has it: use one of keepalive, mtu, wireguardPort`,
		},
		{
			name: "of the gateway", text: "wireguardPort: 5000", driver: testWireGuard,
			err: `line 1: wireguardPort applies to the gateway as a whole and cannot be set by a policy: set it in the ConfigMap of the cluster (Submariner.spec.cableDriverCustomConfig)`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParsePolicyConfig(test.text, test.driver, testDrivers)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestConfigText(t *testing.T) {
	for _, test := range []struct {
		name      string
		data      map[string]string
		want, err string
	}{
		{name: "none"},
		{name: "empty", data: map[string]string{"CableCustomConfig": ""}},
		{
			name: "settings, and something else",
			data: map[string]string{"CableCustomConfig": "mtu: 1400", "README": "x"},
			want: "mtu: 1400",
		},
		{
			name: "another key", data: map[string]string{"cableCustomConfig": "mtu: 1400", "a": ""},
			err: "the key CableCustomConfig is missing: found only a, cableCustomConfig",
		},
		{
			name: "not indented", data: map[string]string{"CableCustomConfig": "", "vxlanID": "100"},
			err: "the key CableCustomConfig is empty, but there are other keys (vxlanID): indent the settings below it",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ConfigText(test.data)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestCheckPorts(t *testing.T) {
	for _, test := range []struct {
		name, text string
		offered    []Driver
		want       string
	}{
		{name: "defaults", offered: testDrivers},
		{
			name: "another's default", text: "vxlanPort: 4501", offered: testDrivers,
			want: "wireguardPort: UDP port 4501 is already used by vxlanPort: use another, from 1 to 65535",
		},
		{name: "another's that is not offered", text: "vxlanPort: 4501", offered: []Driver{testVXLAN}},
		{name: "swapped", text: "vxlanPort: 4501\nwireguardPort: 4502", offered: testDrivers},
		{
			name: "subctl's own", text: "vxlanPort: 4800\nwireguardPort: 4504", offered: testDrivers,
			want: "vxlanPort: UDP port 4800 is already used by VXLAN between the nodes of a cluster: use another, from 1 to 65535\n" +
				"wireguardPort: UDP port 4504 is already used by VXLAN inside IPsec: use another, from 1 to 65535",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings, err := ParseConfig(test.text, testDrivers)
			require.NoError(t, err)
			if err := CheckPorts(settings, test.offered); test.want != "" {
				require.EqualError(t, err, test.want)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// FuzzParseConfig: whatever another cluster writes, what is accepted is what the
// getters read, and says the same when it is read again.
func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{
		"", "vxlanID: 100", "wireguard: {keepalive: 25s}", "mtu: &a 1400\nx: *a", "a: [", "? {}: 1", "<<: {mtu: 3}",
		"---\n---\n", "mtu: !!binary aGk=", "mtu: 1400\nmtu: 1400", "%YAML 1.2\n---\nmtu: 1400", "keepalive: 1h1s",
		"\xff", "- mtu: 1", "{mtu: {mtu: {mtu: 1}}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := ParseConfig(text, testDrivers)
		if err != nil {
			require.NotContains(t, err.Error(), "\x1b")
			return
		}
		for _, d := range testDrivers {
			own := settings[d.Name()]
			for _, o := range d.Options() {
				if n := own.Number(o); o.Kind == OptionNumber && own[o.Key] != "" {
					require.True(t, o.Min <= n && n <= o.Max, "%s %d", o.Key, n)
				}
				if d := own.Duration(o); o.Kind == OptionDuration && own[o.Key] != "" {
					require.True(t, o.within(d) && d%time.Second == 0, "%s %s", o.Key, d)
				}
			}
		}
		again := FormatConfig(settings)
		same, err := ParseConfig(again, testDrivers)
		require.NoError(t, err, again)
		require.Equal(t, settings, same)
	})
}
