package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
)

// The file has all objects, in their order, and nobody else may read it.
func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	s, err := OpenStore(file)
	require.NoError(t, err)
	for _, name := range []string{"b", "a"} {
		require.NoError(t,
			s.put(rest.Zones, &rest.Zone{Name: name, Network: []string{"net1"}, ExtraSrc: " <x> "}, nil, true))
	}
	require.NoError(t, s.put(rest.Forwardings, &rest.Forwarding{Name: "f", Src: "b", Dest: "a"}, nil, true))
	require.NoError(t, s.delete(rest.Forwardings, "f"))
	require.NoError(t, s.stop("mwan3", true))
	// of a program that was killed, and of somebody else
	for _, name := range []string{file + unfinished + "1", file + ".bak"} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	again, err := OpenStore(file)
	require.NoError(t, err)
	require.Equal(t, s.Config(), again.Config())
	require.Equal(t, " <x> ", again.current.Load().Zones[0].ExtraSrc)
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 2, "temporary files stay")
	require.Equal(t, "state.json.bak", left[1].Name())

	// What cannot be written is refused, and changes nothing.
	s.file = filepath.Join(t.TempDir(), "missing", "state.json")
	require.Error(t, s.delete(rest.Zones, "a"))
	require.Len(t, s.Config().Zones, 2)
}

// A CNF awaits its configuration until a service is started, also if its container restarts
// meanwhile. A file from before this field counts as started.
func TestAwaiting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	open := func() *Store {
		s, err := OpenStore(file)
		require.NoError(t, err)
		return s
	}
	require.True(t, open().Config().Awaiting)
	require.NoError(t, open().put(rest.Zones, &rest.Zone{Name: "z", Network: []string{"net1"}}, nil, true))
	require.True(t, open().Config().Awaiting)
	require.NoError(t, open().stop("firewall", true))
	require.True(t, open().Config().Awaiting, "to stop a service finishes nothing")
	require.NoError(t, open().stop("mwan3", false))
	require.False(t, open().Config().Awaiting)
	require.NoError(t, open().delete(rest.Zones, "z"))
	require.False(t, open().Config().Awaiting)

	require.NoError(t, os.WriteFile(file, []byte(`{"version":1}`), 0o600))
	require.False(t, open().Config().Awaiting)

	require.NoError(t, os.Remove(file))
	require.NoError(t, open().EndAwaiting())
	require.False(t, open().Config().Awaiting)
}

// A damaged file is refused with what is wrong with it, and stays.
func TestDamagedFile(t *testing.T) {
	for content, want := range map[string]string{
		``:              "it is not a JSON object",
		`{"version":1,`: "it is not JSON from byte 13 on",
		`{"version":2}`: "it has the version 2, and this program reads version 1",
		`{"version":1,"objects":{"mwan3/policies":{}}}`: "mwan3/policies is not a list",
		`{"version":1,"objects":{"dns/zones":[]}}`:      `it has objects of the unknown type "dns/zones"`,
		`{"version":1,"stopped":["dns"]}`:               `it has the unknown service "dns"`,
	} {
		file := filepath.Join(t.TempDir(), "state.json")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := OpenStore(file)
		require.EqualError(
			t,
			err,
			"the state in "+file+" cannot be used: "+want+
				". Restore it from a copy, or move it away, so that the CNF starts with nothing",
		)
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, content, string(b))
	}
}

// Objects that an older program accepted, and this one does not, are left out and named. All others
// are there, and the CNF forwards nothing until somebody finishes its configuration: a tunnel that
// is missing must not let its packets leave in clear. They do not come back by themselves.
func TestFileOfAnOlderProgram(t *testing.T) {
	const remote = `{"name":%q,"gateway":%q,"authentication_method":"psk","pre_shared_key":"sesame","connections":[{"name":"c","mode":"start","conn_type":"tunnel"}]}`
	content := `{"version":1,"objects":{"mwan3/rules":[{"name":"r"},{"name":7},{"name":"s","policy":"default"},{"name":"s","policy":"p"}],` +
		`"ipsec/remotes":[` + fmt.Sprintf(remote, "bad", "192.0.2.300") + `,` +
		fmt.Sprintf(remote, "good", "192.0.2.30") + `]},"stopped":["mwan3"]}`
	file := filepath.Join(t.TempDir(), "state.json")
	killed := file + before + unfinished + "1" // of a program that was killed
	for _, name := range []string{file, killed} {
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	s, err := OpenStore(file)
	require.NoError(t, err)
	require.NoFileExists(t, killed)
	require.Len(t, s.LeftOut(), 4)
	require.Equal(t, "mwan3/rules/r: policy: required", s.LeftOut()[0])
	require.Equal(t, `mwan3/rules, object 2: name: a string is expected, such as "1", not a number`, s.LeftOut()[1])
	require.Equal(t, "mwan3/rules/s is there twice", s.LeftOut()[2])
	require.Contains(t, s.LeftOut()[3], "ipsec/remotes/bad: gateway: ")
	require.NotContains(t, strings.Join(s.LeftOut(), "\n"), "sesame")
	c := s.Config()
	require.Len(t, c.Remotes, 1)
	require.Equal(t, "good", c.Remotes[0].Name)
	require.Equal(t, []rest.Rule{{Name: "s", Policy: "default"}}, c.Rules)
	require.Equal(t, []string{"mwan3"}, c.Stopped)
	require.True(t, c.Awaiting)
	before, err := os.ReadFile(s.LeftOutCopy())
	require.NoError(t, err)
	require.Equal(t, content, string(before), "nothing is lost")
	info, err := os.Stat(s.LeftOutCopy())
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	again, err := OpenStore(file)
	require.NoError(t, err)
	require.Empty(t, again.LeftOut(), "this program has written the file")
	require.Equal(t, c, again.Config(), "and still awaits its configuration")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(text), "192.0.2.300", "nor does an older program find them again")
	require.NoError(t, again.stop("mwan3", false))
	require.False(t, again.Config().Awaiting)
}
