package cnf

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"subctl/dataplane/dataplanetest"
	"subctl/internal/nstest"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the results to the scenarios")

// worldFile is what scenarios without a world of their own have: a pod with a network of the
// cluster, a LAN and two uplinks.
const worldFile = "testdata/world.yaml"

// scenario reads a file of testdata.
func scenario(t testing.TB, file string) (a *txtar.Archive, c rest.Config, w World) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	require.NoError(t, err)
	world, err := os.ReadFile(worldFile)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(world, &w))
	for _, f := range a.Files {
		switch f.Name {
		case "config.yaml":
			require.NoError(t, yaml.UnmarshalStrict(f.Data, &c))
		case "world.yaml": // what is different
			require.NoError(t, yaml.Unmarshal(f.Data, &w))
		}
	}
	return a, c, w
}

// Each scenario has a configuration, the commands that make Linux hold it, and what the plan leaves
// out.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, c, w := scenario(t, file)
			state, report := Plan(c, w)
			results := map[string]string{"commands": state.String(), "report": report.String()}
			seen := map[string]bool{}
			for i, f := range a.Files {
				if got, is := results[f.Name]; is {
					seen[f.Name] = true
					if *update {
						a.Files[i].Data = []byte(got)
						continue
					}
					require.Equal(t, string(f.Data), got)
				}
			}
			require.True(t, seen["commands"], "no commands")
			if !seen["report"] {
				require.Empty(t, report.String())
			}
			if *update {
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o600))
			}
			fake := &dataplanetest.Fake{}
			for _, o := range state.Sorted() {
				require.NoError(t, fake.Put(o))
			}
			again, report2 := Plan(c, w)
			require.Equal(t, state.String(), again.String(), "a plan must not depend on chance")
			require.Equal(t, report.String(), report2.String(), "nor its report")
		})
	}
}

// Linux takes the commands of every scenario.
func TestScenariosOnLinux(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, _, _ := scenario(t, file)
			onLinux(t, a)
		})
	}
}

// onLinux gives the commands of a scenario to Linux.
func onLinux(t *testing.T, a *txtar.Archive) {
	t.Helper()
	ns := nstest.New(t, "cnf")
	for i, d := range []string{
		"eth0 10.244.0.7/24", "net0 192.168.1.254/24", "net1 198.51.100.2/24", "net2 203.0.113.2/24",
	} {
		dev, addr, _ := strings.Cut(d, " ")
		ns.Run(
			"ip link add " + dev + " type veth peer name p" + string(rune('0'+i)) + " && ip link set p" + string(
				rune('0'+i)) + " up && ip addr add " + addr + " dev " + dev + " && ip link set " + dev + " up",
		)
	}
	for _, f := range a.Files {
		if f.Name == "commands" {
			ns.Run("set -e\n" + string(f.Data))
		}
	}
}
