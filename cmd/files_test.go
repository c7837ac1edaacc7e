package cmd

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"subctl/internal/cli"
)

// A list of the files is the help: each file is named after a command, or is a part of one
// (join_file.go), and each command has a file.
func TestFilesAreCommands(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	files := map[string]bool{}
	for _, f := range sources {
		if name := strings.TrimSuffix(f, ".go"); !strings.HasSuffix(name, "_test") {
			files[name] = true
		}
	}
	delete(files, "root")
	delete(files, "root_args")
	delete(files, "root_elsewhere")

	g, _, _ := testGlobals(t, nil)
	var commands []string
	cli.Each(newRoot(g), func(c *cobra.Command) {
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		name := strings.NewReplacer(" ", "_", "-", "_").Replace(path)
		switch top, _, _ := strings.Cut(path, " "); top {
		case "", "help", "completion": // root.go has them
			return
		case "agent": // its roles are a table (roles.All)
			name = "agent"
		}
		commands = append(commands, name)
		require.True(t, files[name], "the command %q needs a file %s.go", c.CommandPath(), name)
	})
	for f := range files {
		part := false
		for _, c := range commands {
			part = part || f == c || strings.HasPrefix(f, c+"_")
		}
		require.True(t, part, "%s.go is not named after a command", f)
	}
}
