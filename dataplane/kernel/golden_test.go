//go:build linux

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// nftBlock is what a plan gives to nft(8), as it is printed.
var nftBlock = regexp.MustCompile(`(?ms)^\s*nft -f - <<'END'\n(.*?)^\s*END$`)

// nft accepts all tables of the golden files. It needs no root, only a user namespace.
func TestGoldenFilesAreNft(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../testdata/scenarios/*.txtar", "../../sdewan/cnf/testdata/*"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		files = append(files, found...)
	}
	blocks := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, block := range nftBlock.FindAllStringSubmatch(string(text), -1) {
			blocks++
			out, err := checkNft(block[1])
			require.NoError(t, err, "%s: %s\n%s", file, out, block[1])
		}
	}
	require.Greater(t, blocks, 50)
	_, err := checkNft("table ip x {\n\tchain y {\n\t\tip saddr 10.0.0.0/8 dropp\n\t}\n}\n")
	require.Error(t, err, "nft refuses what it does not know")
}

// checkNft has nft(8) check a script in a network namespace of its own.
func checkNft(script string) (string, error) {
	cmd := exec.Command("unshare", "-rn", "nft", "-c", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
