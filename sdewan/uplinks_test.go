package sdewan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseUplinks(t *testing.T) {
	got, err := ParseUplinks(
		[]byte(
			`{"wan1": {"gateway": "198.51.100.1", "trackIPs": ["192.0.2.80"], "interval": 1, "down": 3}, "wan2": {}}`),
	)
	require.NoError(t, err)
	require.Equal(t, map[string]Uplink{
		"wan1": {
			Gateway:     netip.MustParseAddr("198.51.100.1"),
			TrackIPs:    []netip.Addr{netip.MustParseAddr("192.0.2.80")},
			Interval:    1,
			Timeout:     4,
			Count:       1,
			Reliability: 1,
			Up:          5,
			Down:        3,
		},
		"wan2": DefaultUplink,
	}, got)
	for _, empty := range []string{"", " \n", "{}", "null"} {
		got, err := ParseUplinks([]byte(empty))
		require.NoError(t, err, empty)
		require.Empty(t, got)
	}
}

// What others write is refused with the place and the allowed values, all mistakes at once.
func TestHostileUplinks(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                                 "the value has the wrong type, array: it must be JSON such as",
		`{"a": {"gatway": "1.2.3.4"}}`:                       `unknown field "gatway"`,
		`{"a": {"gateway": "1.2.3"}}`:                        "it must be JSON such as",
		`{"a": {}} {}`:                                       "there is text after the object",
		`{"a": {"gateway": "::1"}}`:                          "gateway ::1 must be the IPv4 address of a router",
		`{"a": {"gateway": "224.0.0.1"}}`:                    "gateway 224.0.0.1 must be",
		`{"a": {"gateway": "240.0.0.1"}}`:                    "gateway 240.0.0.1 must be",
		`{"a": 1}`:                                           `uplink "a": the value has the wrong type, number: it must be JSON such as {"gateway"`,
		`{"a": {"interval": "5"}, "b": 1}`:                   `uplink "a": interval has the wrong type, string: it must be JSON such as`,
		`{"a": {"trackIPs": ["0.0.0.0"]}}`:                   "trackIPs: 0.0.0.0 must be",
		`{"a": {"interval": -1, "up": 9999}}`:                "interval -1 must be from 1 to 3600\nup 9999 must be from 1 to 3600",
		`{"a": {"trackIPs": ["1.1.1.1"], "reliability": 2}}`: "reliability 2 must not exceed the number of trackIPs, 1",
		strings.Repeat(" ", maxAnnotation) + `{}`:            "bytes are too long",
		`{"a": {"trackIPs": [` + strings.Repeat(`"1.1.1.1",`, 16) + `"1.1.1.1"]}}`: "17 trackIPs are too many",
	} {
		_, err := ParseUplinks([]byte(text))
		require.ErrorContains(t, err, want, "%.60s", text)
		require.NotContains(t, err.Error(), "sdewan.Uplink")
	}
}

func FuzzParseUplinks(f *testing.F) {
	f.Add([]byte(`{"wan1": {"gateway": "198.51.100.1", "trackIPs": ["192.0.2.80"], "interval": 1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ParseUplinks(text)
		for name, u := range got {
			if err != nil || u.Interval < 1 || u.Down < 1 || u.Up < 1 || u.Timeout < 1 || u.Count < 1 ||
				u.Reliability < 1 {
				t.Errorf("%q: %+v, %v", name, u, err)
			}
		}
	})
}
