//go:build linux

package strongswan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckVersion(t *testing.T) {
	for version, good := range map[string]bool{
		"5.9.8":  true,
		"5.9":    true,
		"6.0.1":  true,
		"5.8.4":  false,
		"4.9":    false,
		"":       false,
		"latest": false,
	} {
		require.Equal(t, good, checkVersion(version) == nil, version)
	}
}

// The configuration contains its settings, and never enables a log with keys.
func TestConf(t *testing.T) {
	for _, s := range []Settings{{NATPort: 4500}, {Port: 500, NATPort: 4510, Debug: true, Table: 7}} {
		for _, s.Userspace = range []bool{false, true} {
			text := string(conf(s, "/run/x"))
			require.Equal(t, s, parseConf([]byte(text)))
			require.Equal(t, s.Userspace, strings.Contains(text, libipsec))
			require.NotRegexp(t, `default = [34]`, text)
			require.Contains(t, text, "socket = unix:///run/x/charon.vici")
			require.Contains(t, text, fmt.Sprintf("\n  port = %d\n  port_nat_t = %d\n", s.Port, s.NATPort))
		}
	}
	require.Zero(t, parseConf([]byte("# another program's\n")))
}

// A CNF finds out soon enough that the other end has forgotten it.
func TestTriesOfACNF(t *testing.T) {
	total := func(s Settings) (seconds float64) {
		value := func(name string) (v float64) {
			_, text, found := strings.Cut(string(conf(s, "/run/x")), "\n  "+name+" = ")
			require.True(t, found)
			_, err := fmt.Sscan(text, &v)
			require.NoError(t, err)
			return v
		}
		for n, wait := 0.0, value("retransmit_timeout"); n <= value("retransmit_tries"); n++ {
			seconds = seconds + min(wait, value("retransmit_limit"))
			wait = wait * value("retransmit_base")
		}
		return seconds
	}
	require.InDelta(t, 18, total(Settings{NATPort: 4500}), 0.5)
	require.InDelta(t, 10, total(Settings{NATPort: 4500, Mark: 1}), 0.5)
}
