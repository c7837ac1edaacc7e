package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	code    = regexp.MustCompile("(?s)```.*?```")
)

// TestLinks: what the documentation links to exists, headings included.
func TestLinks(t *testing.T) {
	pages := []string{
		filepath.Join(root, "README.md"),
		filepath.Join(root, "CONTRIBUTING.md"),
		filepath.Join(root, "scripts", "lab", "README.md"),
	}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		pages = append(pages, more...)
	}
	links := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			name, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if name != "" {
				target = filepath.Join(filepath.Dir(page), name)
			}
			require.FileExists(t, target+dirSuffix(target), "%s links to %s", page, m[1])
			if anchor != "" {
				require.Contains(t, anchors(t, target), anchor, "%s links to %s", page, m[1])
			}
		}
	}
	require.Greater(t, links, 100)
}

// dirSuffix lets a link to a folder be checked by a file in it.
func dirSuffix(target string) string {
	if files, err := filepath.Glob(filepath.Join(target, "*.md")); err == nil && len(files) > 0 {
		return "/" + filepath.Base(files[0])
	}
	return ""
}

// anchors are the names of a page's headings, as GitHub makes them.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var out []string
	for _, m := range heading.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(name, " ", "-"))
	}
	return out
}

// TestNamedTests: the tests that the documentation names, such as `agent.TestBooks`, exist
// in a package of that name. A name may end in "*".
func TestNamedTests(t *testing.T) {
	existing := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(source), -1) {
			name := filepath.Base(filepath.Dir(path)) + "." + m[1]
			for i := range len(name) + 1 {
				existing[name[:i]+"*"] = true
			}
			existing[name] = true
		}
		return err
	}))
	var pages []string
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		pages = append(pages, more...)
	}
	named := regexp.MustCompile("`(?:\\w+/)*(\\w+\\.(?:Test|Fuzz)\\w+\\*?)`")
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			require.True(t, existing[m[1]], "%s names %s, which does not exist", page, m[1])
		}
	}
	require.Greater(t, found, 5)
}
